#include "lora/adapter_builder.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>

#include "base/background_throttle.h"
#include "base/checked.h"
#include "base/error.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

// Whether no value is infinite or NaN: in every float format all bits of `exponent` are set in these. `found` has the
// values' own type so that the loop is vectorised.
template <typename Bits>
bool finiteBits(std::span<const std::byte> bytes, Bits exponent, BackgroundThrottle* throttle) {
  bool finite = true;
  inPieces(std::ssize(bytes) / static_cast<int64_t>(sizeof(Bits)), sizeof(Bits), throttle,
           [&](int64_t begin, int64_t count) {
             const std::byte* piece = bytes.data() + static_cast<size_t>(begin) * sizeof(Bits);
             Bits found = 0;
             for (int64_t i = 0; i < count; ++i) {
               Bits bits;
               std::memcpy(&bits, piece + static_cast<size_t>(i) * sizeof(Bits), sizeof(Bits));
               found |= static_cast<Bits>((bits & exponent) == exponent ? 1 : 0);
             }
             finite &= found == 0;
           });
  return finite;
}

// Whether the bits of all magnitudes, which are ordered as the magnitudes are, are less than `bound`.
template <typename Bits>
bool magnitudesBelow(std::span<const std::byte> bytes, Bits bound, BackgroundThrottle* throttle) {
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max() / 2;
  const auto* values = reinterpret_cast<const Bits*>(bytes.data());
  bool below = true;
  inPieces(std::ssize(bytes) / static_cast<int64_t>(sizeof(Bits)), sizeof(Bits), throttle,
           [&](int64_t begin, int64_t count) {
             Bits found = 0;
             for (int64_t i = begin; i < begin + count; ++i) {
               found |= static_cast<Bits>((values[i] & kMagnitude) >= bound ? 1 : 0);
             }
             below &= found == 0;
           });
  return below;
}

// float64 adapters are stored as float32: a value beyond float32's range would become infinite.
bool fitFloat32(std::span<const std::byte> doubles, BackgroundThrottle* throttle) {
  bool fit = true;
  inPieces(std::ssize(doubles) / static_cast<int64_t>(sizeof(double)), sizeof(double), throttle,
           [&](int64_t begin, int64_t count) {
             for (int64_t i = begin; i < begin + count; ++i) {
               double value;
               std::memcpy(&value, doubles.data() + static_cast<size_t>(i) * sizeof(double), sizeof(double));
               fit &= std::abs(value) <= std::numeric_limits<float>::max();
             }
           });
  return fit;
}

// Also of a tensor whose values were not read.
uint64_t bytesOf(const TensorView& tensor) {
  return checkedMul(checkedElementCount(tensor.shape, "tensor"), dtypeSize(tensor.dtype), "tensor");
}

std::shared_ptr<std::byte> allocate(size_t bytes) {
  return {static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1))),
          [](std::byte* p) { ::operator delete(p); }};
}

std::shared_ptr<std::byte> copyOf(std::span<const std::byte> bytes, BackgroundThrottle* throttle) {
  auto copy = allocate(bytes.size());
  inPieces(std::ssize(bytes), 1, throttle, [&](int64_t begin, int64_t count) {
    std::memcpy(copy.get() + begin, bytes.data() + begin, static_cast<size_t>(count));
  });
  return copy;
}
}  // namespace

namespace {

// The id that replaces {expert} in `pattern` to give `name`; -1 if the names are equal; nullopt if they differ, or if
// there is no such expert.
std::optional<int64_t> expertNamed(std::string_view name, std::string_view pattern, int64_t experts) {
  if (name == pattern) return namesExpert(pattern) ? std::nullopt : std::optional<int64_t>(-1);
  constexpr std::string_view kExpert = "{expert}";
  const size_t at = pattern.find(kExpert);
  if (at == std::string_view::npos || name.substr(0, at) != pattern.substr(0, at)) return std::nullopt;
  int64_t expert = -1;
  std::from_chars(name.data() + at, name.data() + name.size(), expert);
  if (expert < 0 || expert >= experts || name != expertName(pattern, expert)) return std::nullopt;
  return expert;
}
}  // namespace

std::optional<ModulePlace> findModule(const WeightTable& table, int32_t module_id, int32_t layer) {
  for (const WeightRow& row : table) {
    if (!row.isInLayer(layer)) continue;
    for (const LoraTarget& target : row.lora_targets) {
      if (target.module_id == module_id) return ModulePlace{&row, &target};
    }
  }
  return std::nullopt;
}

std::vector<ModulePlace> findModulesOfId(const WeightTable& table, int32_t module_id, int32_t layer) {
  std::vector<int32_t> ids = {module_id};
  if (module_id == kMlpGateUp) ids = {kMlpHTo4H, kMlpGate};
  if (module_id == kAttnQkv && !findModule(table, kAttnQkv, layer)) ids = {kAttnQ, kAttnK, kAttnV};
  std::vector<ModulePlace> places;
  for (const int32_t id : ids) {
    const auto place = loraModuleName(id) ? findModule(table, id, layer) : std::nullopt;
    if (!place) return {};
    places.push_back(*place);
  }
  return places;
}

std::vector<ModulePlace> findModules(const WeightTable& table, std::string_view module_name, int32_t layer) {
  std::vector<ModulePlace> places;
  for (const WeightRow& row : table) {
    if (!row.isInLayer(layer)) continue;
    for (const LoraTarget& target : row.lora_targets) {
      if (const auto expert = expertNamed(module_name, target.module_name, row.experts)) {
        places.push_back({&row, &target, *expert});
      }
    }
  }
  return places;
}

std::vector<std::string> expertParameters(const WeightTable& table, std::string_view module_name, int32_t layer) {
  std::vector<std::string> parameters;
  for (const WeightRow& row : table) {
    if (row.experts == 0 || !row.isInLayer(layer)) continue;
    for (const LoraTarget& target : row.lora_targets) {
      const std::string& name = target.module_name;
      const size_t dot = name.rfind('.');
      if (namesExpert(name) || dot == std::string::npos || std::string_view(name).substr(0, dot) != module_name)
        continue;
      std::string parameter = name.substr(dot + 1);
      if (std::ranges::find(parameters, parameter) == parameters.end()) parameters.push_back(std::move(parameter));
    }
  }
  return parameters;
}

std::string moduleNames(const WeightTable& table) {
  std::vector<std::string_view> seen;
  std::string names;
  for (const WeightRow& row : table) {
    for (const LoraTarget& target : row.lora_targets) {
      if (std::find(seen.begin(), seen.end(), target.module_name) != seen.end()) continue;
      seen.push_back(target.module_name);
      names += (names.empty() ? "" : ", ") + target.module_name;
    }
  }
  return names;
}

bool isAdapterDType(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat64;
}

bool allFinite(std::span<const std::byte> bytes, DType dtype, BackgroundThrottle* throttle) {
  switch (dtype) {
    case DType::kFloat32:
      return finiteBits<uint32_t>(bytes, 0x7f800000u, throttle);
    case DType::kFloat16:
      return finiteBits<uint16_t>(bytes, 0x7c00u, throttle);
    case DType::kBFloat16:
      return finiteBits<uint16_t>(bytes, 0x7f80u, throttle);
    case DType::kFloat64:
      return fitFloat32(bytes, throttle);
    default:
      return true;
  }
}

bool allFiniteAs(std::span<const std::byte> bytes, DType from, DType to, BackgroundThrottle* throttle) {
  // The bounds are the least magnitudes that are rounded to infinity, half a unit beyond the type's largest value.
  if (from == DType::kFloat32 && to == DType::kBFloat16) return magnitudesBelow<uint32_t>(bytes, 0x7F7F8000U, throttle);
  if (from == DType::kFloat32 && to == DType::kFloat16) return magnitudesBelow<uint32_t>(bytes, 0x477FF000U, throttle);
  if (from == DType::kBFloat16 && to == DType::kFloat16) return magnitudesBelow<uint16_t>(bytes, 0x4780U, throttle);
  return true;  // `to` has the range of `from`
}

bool allZero(std::span<const std::byte> bytes, DType dtype, BackgroundThrottle* throttle) {
  constexpr size_t kPiece = 4096;
  const size_t size = dtypeSize(dtype);
  for (size_t begin = 0; begin < bytes.size(); begin += kPiece) {
    const auto piece = bytes.subspan(begin, std::min(kPiece, bytes.size() - begin));
    for (size_t at = 0; at < piece.size(); ++at) {
      // A negative zero has the sign, the highest bit of the element's last byte.
      const bool has_sign = at % size == size - 1;
      if ((piece[at] & (has_sign ? std::byte{0x7f} : std::byte{0xff})) != std::byte{0}) return false;
    }
    chargeThrottle(throttle, piece.size());
  }
  return true;
}

std::vector<float> toFloats(const TensorView& tensor, BackgroundThrottle* throttle) {
  const auto aligned = copyOf(tensor.bytes, throttle);
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  convertElements(aligned.get(), tensor.dtype, values.data(), DType::kFloat32, values.size(), throttle);
  return values;
}

const std::byte* AdapterBuilder::place(const TensorView& tensor, DType dtype) {
  if (takesShapesOnly()) return zeros_;
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.bytes.data()) % dtypeSize(tensor.dtype) == 0;
  if (aligned && tensor.dtype == dtype) return tensor.bytes.data();
  const std::byte*& placed = copies_[{tensor.bytes.data(), tensor.bytes.size(), dtype}];
  if (placed != nullptr) return placed;
  const auto count = static_cast<size_t>(tensor.elements());
  auto copy = copyOf(tensor.bytes, throttle_);
  if (tensor.dtype != dtype) {
    const auto converted = allocate(count * dtypeSize(dtype));
    convertElements(copy.get(), tensor.dtype, converted.get(), dtype, count, throttle_);
    copy = converted;
  }
  keep(copy);
  placed = copy.get();
  return placed;
}

uint64_t copiedBytes(const TensorFile& file) {
  uint64_t as_they_are = 0, as_float32 = 0, largest = 0;
  std::optional<DType> dtype;
  bool one_dtype = true;
  for (const std::string& name : file.names()) {
    const TensorView& tensor = *file.find(name);
    one_dtype = one_dtype && dtype.value_or(tensor.dtype) == tensor.dtype;
    dtype = tensor.dtype;
    const uint64_t bytes = tensor.bytes.size();
    as_they_are = checkedAdd(as_they_are, bytes, "the tensors");
    const uint64_t converted = checkedMul(static_cast<uint64_t>(tensor.elements()), sizeof(float), "the tensors");
    as_float32 = checkedAdd(as_float32, converted, "the tensors");
    largest = std::max(largest, bytes);
  }
  if (!one_dtype || dtype == DType::kFloat64) return checkedAdd(as_float32, largest, "the tensors");
  return file.inPlace() ? 0 : as_they_are;
}

void AdapterBuilder::limitValues(uint64_t file_bytes, std::string source) {
  // An embedding and its output head may share their values. The parts of a fused linear, at most three, have one A.
  constexpr uint64_t kUses = 4, kFree = 1 << 16;
  values_left_ = checkedAdd(checkedMul(file_bytes, kUses, "the file"), kFree, "the file");
  source_ = std::move(source);
}

void AdapterBuilder::charge(uint64_t bytes) {
  if (bytes > values_left_) {
    fail(ErrorCode::kCorrupt,
         "{}: its tensors share their values, and together they are several times as large as the file; save a "
         "contiguous copy of each",
         source_);
  }
  values_left_ -= bytes;
}

void AdapterBuilder::add(AdapterModule module, const TensorView& a, const TensorView& b) {
  charge(bytesOf(a));
  charge(bytesOf(b));
  const bool keeps_type = a.dtype == b.dtype && a.dtype != DType::kFloat64;
  module.dtype = keeps_type ? a.dtype : DType::kFloat32;
  module.a = place(a, module.dtype);
  module.b = place(b, module.dtype);
  adapter_.max_rank = std::max(adapter_.max_rank, module.rank);
  adapter_.uses_dora = adapter_.uses_dora || !module.magnitude.empty();
  adapter_.modules.push_back(std::move(module));
}

void AdapterBuilder::add(AdapterWeight weight, const TensorView& values) {
  charge(bytesOf(values));
  weight.dtype = values.dtype == DType::kFloat64 ? DType::kFloat32 : values.dtype;
  weight.data = place(values, weight.dtype);
  adapter_.weights.push_back(std::move(weight));
}

namespace {

// Adapter::without_effect. Looks at one value of most modules: a trained B rarely begins with a zero.
std::string reasonWithoutEffect(const Adapter& adapter, BackgroundThrottle* throttle) {
  const bool has_values = !adapter.weights.empty() || !adapter.embedding_tokens.empty() ||
                          !adapter.head_tokens.empty() || adapter.vocab_size > 0 || adapter.input_vocab_size > 0;
  if (adapter.only_shapes || has_values) return {};
  bool has_scale = false;
  for (const AdapterModule& module : adapter.modules) {
    const bool has_bias = std::ranges::any_of(module.bias, [](float value) { return value != 0; });
    if (!module.magnitude.empty()) return {};
    if (module.scale == 0) continue;
    if (has_bias || (!allZero({module.b, module.bBytes()}, module.dtype, throttle) &&
                     !allZero({module.a, module.aBytes()}, module.dtype, throttle))) {
      return {};
    }
    has_scale = true;
  }
  return has_scale ? "the product of every lora_B and lora_A is zero, as before training" : "its scale is 0";
}
}  // namespace

Adapter AdapterBuilder::finish(std::string content_hash) {
  std::sort(adapter_.modules.begin(), adapter_.modules.end(), [](const AdapterModule& x, const AdapterModule& y) {
    return std::tie(x.layer, x.module_id, x.expert) < std::tie(y.layer, y.module_id, y.expert);
  });
  std::sort(adapter_.weights.begin(), adapter_.weights.end(), [](const AdapterWeight& x, const AdapterWeight& y) {
    return std::tie(x.layer, x.slot, x.row_begin) < std::tie(y.layer, y.slot, y.row_begin);
  });
  adapter_.content_hash = std::move(content_hash);
  adapter_.without_effect = reasonWithoutEffect(adapter_, throttle_);
  return std::move(adapter_);
}

}  // namespace chorus
