#include "formats/torch_objects.h"

#include <algorithm>
#include <iterator>

#include "base/checked.h"
#include "base/error.h"
#include "formats/tensor_file.h"

namespace chorus {
namespace {

constexpr size_t kMaxTensors = 100'000;
constexpr size_t kMaxKeyBytes = 256;
constexpr size_t kMaxLocationBytes = 64;
// Limit on the bytes and items that all calls together examine, because a short pickle can pass one long value to many
// calls.
constexpr size_t kMaxWork = size_t{1} << 24;

enum class Global : uint32_t {
  kOrderedDict,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildFromType,
  kTensorType,
  kSize,
  kSet,
  kEncode,
  kBytesIo,
  kStorage,
  kDType,
  kEnumeration
};

constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";

struct GlobalRow {
  std::string_view name;
  Global global;
  DType dtype = DType::kUint8;  // only for kStorage and kDType
};
constexpr GlobalRow kGlobals[] = {{"collections.OrderedDict", Global::kOrderedDict},
                                  {"torch._utils._rebuild_tensor", Global::kRebuildTensor},
                                  {"torch._utils._rebuild_tensor_v2", Global::kRebuildTensorV2},
                                  {"torch._utils._rebuild_tensor_v3", Global::kRebuildTensorV3},
                                  {"torch._utils._rebuild_parameter", Global::kRebuildParameter},
                                  {"torch._tensor._rebuild_from_type_v2", Global::kRebuildFromType},
                                  {"torch.Tensor", Global::kTensorType},
                                  {"torch.nn.parameter.Parameter", Global::kTensorType},
                                  {"torch.Size", Global::kSize},
                                  {"builtins.set", Global::kSet},
                                  {"__builtin__.set", Global::kSet},
                                  {"_codecs.encode", Global::kEncode},
                                  {"_io.BytesIO", Global::kBytesIo},
                                  {kUntyped, Global::kStorage, DType::kUint8},
                                  {"torch.FloatStorage", Global::kStorage, DType::kFloat32},
                                  {"torch.HalfStorage", Global::kStorage, DType::kFloat16},
                                  {"torch.BFloat16Storage", Global::kStorage, DType::kBFloat16},
                                  {"torch.DoubleStorage", Global::kStorage, DType::kFloat64},
                                  {"torch.CharStorage", Global::kStorage, DType::kInt8},
                                  {"torch.ByteStorage", Global::kStorage, DType::kUint8},
                                  {"torch.ShortStorage", Global::kStorage, DType::kInt16},
                                  {"torch.IntStorage", Global::kStorage, DType::kInt32},
                                  {"torch.LongStorage", Global::kStorage, DType::kInt64},
                                  {"torch.BoolStorage", Global::kStorage, DType::kBool},
                                  {"torch.float32", Global::kDType, DType::kFloat32},
                                  {"torch.float16", Global::kDType, DType::kFloat16},
                                  {"torch.bfloat16", Global::kDType, DType::kBFloat16},
                                  {"torch.float64", Global::kDType, DType::kFloat64},
                                  {"torch.int8", Global::kDType, DType::kInt8},
                                  {"torch.uint8", Global::kDType, DType::kUint8},
                                  {"torch.int16", Global::kDType, DType::kInt16},
                                  {"torch.int32", Global::kDType, DType::kInt32},
                                  {"torch.int64", Global::kDType, DType::kInt64},
                                  {"torch.bool", Global::kDType, DType::kBool},
                                  {"torch.float8_e4m3fn", Global::kDType, DType::kFloat8E4M3}};
// Read as a number if other classes are OtherClasses::kOpaque.
constexpr std::string_view kEnumeration = "deepspeed.runtime.zero.config.ZeroStageEnum";

// Modules whose functions run commands or read and write files when a pickle calls them. They are harmless here, but a
// file that has them is an attack on other readers.
constexpr std::string_view kAttacks[] = {"builtins", "__builtin__", "ctypes",     "importlib", "nt",
                                         "os",       "pickle",      "posix",      "pty",       "runpy",
                                         "shutil",   "socket",      "subprocess", "sys"};
// Types of builtins that are data.
constexpr std::string_view kBuiltInTypes[] = {"bytearray", "complex", "dict",  "frozenset", "int",  "float",
                                              "list",      "object",  "range", "slice",     "tuple"};

bool isAttack(std::string_view module, std::string_view name) {
  const std::string_view package = module.substr(0, module.find('.'));
  if (std::ranges::find(kAttacks, package) == std::end(kAttacks)) return false;
  const bool built_in = module == "builtins" || module == "__builtin__";
  return !built_in || std::ranges::find(kBuiltInTypes, name) == std::end(kBuiltInTypes);
}

// Tags of PickleKind::kObject. PickleValue::index is the object's index in storages_ or tensors_.
enum Tag : int64_t { kOpaqueTag, kStorageTag, kTensorTag, kBytesIoTag };

PickleValue object(Tag tag, size_t index) {
  PickleValue value;
  value.kind = PickleKind::kObject;
  value.index = static_cast<uint32_t>(index);
  value.integer = tag;
  return value;
}
bool isObject(const PickleValue& value, Tag tag) { return value.is(PickleKind::kObject) && value.integer == tag; }

constexpr GlobalRow kEnumerationRow = {kEnumeration, Global::kEnumeration};
constexpr auto kEnumerationIndex = static_cast<uint32_t>(std::size(kGlobals));

const GlobalRow* rowOf(const PickleValue& value) {
  if (!value.is(PickleKind::kGlobal)) return nullptr;
  return value.index == kEnumerationIndex ? &kEnumerationRow : &kGlobals[value.index];
}

bool isFloating(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat64:
    case DType::kFloat8E4M3:
      return true;
    default:
      return false;
  }
}

// Whether `location` is a device that weights can be saved from; which one does not matter. "meta" is refused because
// its tensors have no bytes.
bool isLocation(std::string_view location) {
  for (const std::string_view device : {"cpu", "cuda", "mps", "xpu", "hpu", "npu"}) {
    if (location == device) return true;
    if (location.size() > device.size() + 1 && location.starts_with(device) && location[device.size()] == ':') {
      const std::string_view number = location.substr(device.size() + 1);
      return number.find_first_not_of("0123456789") == std::string_view::npos;
    }
  }
  return false;
}
}  // namespace

uint64_t TorchTensor::elements() const { return checkedElementCount(shape, "tensor"); }

bool TorchTensor::isContiguous() const {
  if (elements() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

void TorchObjects::corrupt(std::string_view reason) const {
  fail(ErrorCode::kCorrupt, "{}: damaged PyTorch file: {}", source_, reason);
}

void TorchObjects::charge(size_t work) {
  if (work > kMaxWork - work_)
    fail(ErrorCode::kUnsupported, "{}: the pickle passes too much data to function calls", source_);
  work_ += work;
}

PickleValue TorchObjects::findGlobal(std::string_view module, std::string_view name) {
  const std::string full = fmt::format("{}.{}", module, name);
  const auto row = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                [&](const GlobalRow& known) { return known.name == full; });
  PickleValue value;
  value.kind = PickleKind::kGlobal;
  value.index = static_cast<uint32_t>(row - std::begin(kGlobals));
  if (row == std::end(kGlobals)) {
    if (others_ == OtherClasses::kOpaque && full == kEnumeration) return value;
    if (others_ == OtherClasses::kOpaque && !isAttack(module, name)) return object(kOpaqueTag, 0);
    fail(ErrorCode::kUnsupported, "{}: the pickle imports {}, which is not needed to read tensors: refused", source_,
         full);
  }
  return value;
}

// Transformer Engine keeps the state of its modules in io.BytesIO objects beside the weights. They are never read.
std::optional<PickleValue> TorchObjects::newObject(const PickleValue& global, std::span<const PickleValue> arguments) {
  if (rowOf(global)->global != Global::kBytesIo || !arguments.empty()) return std::nullopt;
  return object(kBytesIoTag, 0);
}

bool TorchObjects::isOpaque(const PickleValue& value) const {
  return isObject(value, kBytesIoTag) || (others_ == OtherClasses::kOpaque && isObject(value, kOpaqueTag));
}

PickleValue TorchObjects::call(PickleHeap& heap, const PickleValue& global, std::span<const PickleValue> arguments) {
  const GlobalRow& row = *rowOf(global);
  switch (row.global) {
    case Global::kOrderedDict:
      if (arguments.empty()) return heap.newContainer(PickleKind::kOrderedDict);
      break;
    case Global::kRebuildTensor:
      if (arguments.size() == 4) return rebuildTensor(heap, arguments, false);
      break;
    case Global::kRebuildTensorV2:
      if (arguments.size() == 6 || arguments.size() == 7) return rebuildTensor(heap, arguments, false);
      break;
    case Global::kRebuildTensorV3:
      if (arguments.size() == 7 || arguments.size() == 8) return rebuildTensor(heap, arguments, true);
      break;
    case Global::kRebuildParameter:
      if (arguments.size() == 3) return rebuildParameter(heap, arguments);
      break;
    case Global::kRebuildFromType:
      if (arguments.size() == 4) return rebuildFromType(heap, arguments);
      break;
    case Global::kEnumeration:
      if (arguments.size() == 1 && arguments[0].is(PickleKind::kInt)) return arguments[0];
      break;
    case Global::kSize:
      if (arguments.size() == 1) {
        extents(heap, arguments[0]);
        return arguments[0];
      }
      break;
    // Besides weights, a checkpoint may contain a set of texts or a bytes object. Both are accepted but never read.
    case Global::kSet:
      if (arguments.size() == 1 && arguments[0].is(PickleKind::kList)) {
        const auto& items = heap.items(arguments[0]);
        charge(items.size());
        const bool texts = std::all_of(items.begin(), items.end(), [](const PickleValue& item) {
          return item.is(PickleKind::kText) || item.is(PickleKind::kInt);
        });
        if (texts) return object(kOpaqueTag, 0);
      }
      break;
    case Global::kEncode:
      if (arguments.size() == 2 && arguments[0].is(PickleKind::kText) && arguments[1].is(PickleKind::kText) &&
          heap.text(arguments[1]) == "latin1") {
        const std::string_view text = heap.text(arguments[0]);
        charge(text.size());
        // latin1 encodes only characters up to U+00FF. A UTF-8 byte of 0xc4 or more begins a character beyond that.
        if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xc4; })) {
          return object(kOpaqueTag, 0);
        }
      }
      break;
    case Global::kBytesIo:
    case Global::kTensorType:
    case Global::kStorage:
    case Global::kDType:
      break;
  }
  const bool is_data = row.global == Global::kSet || row.global == Global::kEncode;
  if (others_ == OtherClasses::kOpaque && is_data) return object(kOpaqueTag, 0);
  fail(ErrorCode::kUnsupported, "{}: the pickle calls {} with {} arguments in a way that torch.save does not: refused",
       source_, row.name, arguments.size());
}

std::vector<int64_t> TorchObjects::extents(const PickleHeap& heap, const PickleValue& value) const {
  if (!value.is(PickleKind::kTuple) && !value.is(PickleKind::kList)) corrupt("a shape is not a tuple");
  const std::span<const PickleValue> items =
      value.is(PickleKind::kTuple) ? heap.tuple(value) : std::span<const PickleValue>(heap.items(value));
  if (items.size() > kMaxTensorRank) corrupt(fmt::format("a shape of {} dimensions", items.size()));
  std::vector<int64_t> result;
  for (const PickleValue& item : items) {
    if (!item.is(PickleKind::kInt) || item.integer < 0) corrupt("a shape has an element that is not a size");
    result.push_back(item.integer);
  }
  return result;
}

void TorchObjects::checkGradient(const PickleHeap& heap, DType dtype, const PickleValue& requires_grad,
                                 const PickleValue& hooks) const {
  if (!requires_grad.is(PickleKind::kBool) || (requires_grad.integer != 0 && !isFloating(dtype))) {
    corrupt("a tensor's requires_grad is not a bool that its dtype allows");
  }
  if (!hooks.is(PickleKind::kOrderedDict) || !heap.items(hooks).empty()) corrupt("a tensor has hooks");
}

// arguments: storage, offset, size, stride[, requires_grad, hooks[, dtype][, metadata]]; dtype only with own_dtype.
PickleValue TorchObjects::rebuildTensor(const PickleHeap& heap, std::span<const PickleValue> arguments,
                                        bool own_dtype) {
  if (!isObject(arguments[0], kStorageTag)) corrupt("a tensor has no storage");
  if (!arguments[1].is(PickleKind::kInt) || arguments[1].integer < 0)
    corrupt("a tensor's offset is not an integer of at least 0");
  const TorchStorage& storage = storages_[arguments[0].index];
  TorchTensor tensor = {.storage = arguments[0].index,
                        .dtype = storage.dtype,
                        .offset = static_cast<uint64_t>(arguments[1].integer),
                        .shape = extents(heap, arguments[2]),
                        .strides = extents(heap, arguments[3])};
  if (tensor.shape.size() != tensor.strides.size()) corrupt("a tensor's shape and strides differ in length");
  size_t metadata = 6;
  if (own_dtype) {
    const GlobalRow* dtype = rowOf(arguments[6]);
    if (dtype == nullptr || dtype->global != Global::kDType) corrupt("a tensor's dtype argument is not a dtype");
    tensor.dtype = dtype->dtype;
    metadata = 7;
  }
  if (arguments.size() > 4) checkGradient(heap, tensor.dtype, arguments[4], arguments[5]);
  if (arguments.size() > metadata) {
    const PickleValue& flags = arguments[metadata];
    if (!flags.is(PickleKind::kNone) && !(flags.isDict() && heap.items(flags).empty())) {
      fail(ErrorCode::kUnsupported, "{}: a tensor with conjugation or negation flags", source_);
    }
  }

  uint64_t end = tensor.offset;  // one past the last element
  if (tensor.elements() > 0) {
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      const auto steps = static_cast<uint64_t>(tensor.shape[i] - 1);
      end = checkedAdd(end, checkedMul(steps, static_cast<uint64_t>(tensor.strides[i]), "tensor"), "tensor");
    }
    end = checkedAdd(end, 1, "tensor");
  }
  if (checkedMul(end, dtypeSize(tensor.dtype), "tensor") > storage.bytes()) {
    corrupt(fmt::format("a tensor reaches beyond its storage of {} bytes", storage.bytes()));
  }
  if (tensors_.size() >= kMaxTensors) fail(ErrorCode::kUnsupported, "{}: more than {} tensors", source_, kMaxTensors);
  tensors_.push_back(std::move(tensor));
  return object(kTensorTag, tensors_.size() - 1);
}

// arguments: function, type, arguments of the function, attributes of the tensor. The attributes change no value.
PickleValue TorchObjects::rebuildFromType(PickleHeap& heap, std::span<const PickleValue> arguments) {
  const GlobalRow *function = rowOf(arguments[0]), *type = rowOf(arguments[1]);
  if (function == nullptr || function->global == Global::kRebuildFromType || type == nullptr ||
      type->global != Global::kTensorType || !arguments[2].is(PickleKind::kTuple)) {
    corrupt("a tensor with attributes is not made by a function for tensors");
  }
  const auto inner = heap.tuple(arguments[2]);
  constexpr size_t kMaxInner = 8;
  if (inner.size() > kMaxInner) corrupt("a tensor with attributes has too many arguments");
  const PickleValue made = call(heap, arguments[0], std::vector<PickleValue>(inner.begin(), inner.end()));
  if (tensor(made) == nullptr) corrupt("a tensor with attributes is not made by a function for tensors");
  return made;
}

PickleValue TorchObjects::rebuildParameter(const PickleHeap& heap, std::span<const PickleValue> arguments) const {
  const TorchTensor* data = tensor(arguments[0]);
  if (data == nullptr) corrupt("a parameter has no tensor");
  checkGradient(heap, data->dtype, arguments[1], arguments[2]);
  return arguments[0];
}

PickleValue TorchObjects::persistentLoad(const PickleHeap& heap, const PickleValue& id) {
  const auto fields = id.is(PickleKind::kTuple) ? heap.tuple(id) : std::span<const PickleValue>{};
  if (fields.size() != id_fields_ || !fields[0].is(PickleKind::kText) || heap.text(fields[0]) != "storage") {
    fail(ErrorCode::kUnsupported, "{}: the pickle has a persistent reference that is not a storage: refused", source_);
  }
  const GlobalRow* type = rowOf(fields[1]);
  if (type == nullptr || type->global != Global::kStorage) corrupt("a storage has no type");
  if (!fields[2].is(PickleKind::kText) || !fields[3].is(PickleKind::kText) || !fields[4].is(PickleKind::kInt) ||
      fields[4].integer < 0 || heap.text(fields[2]).size() > kMaxKeyBytes ||
      heap.text(fields[3]).size() > kMaxLocationBytes) {
    corrupt("a storage's id is malformed");
  }
  if (fields.size() == 6 && type->name == kUntyped) {
    fail(ErrorCode::kUnsupported, "{}: {} in a file before PyTorch 1.6, which PyTorch does not read either", source_,
         kUntyped);
  }
  if (fields.size() == 6 && !fields[5].is(PickleKind::kNone)) {
    fail(ErrorCode::kUnsupported, "{}: a view of a storage; load the file with PyTorch and save it again", source_);
  }
  if (!isLocation(heap.text(fields[3]))) {
    fail(ErrorCode::kUnsupported, "{}: a storage of device '{}'", source_, heap.text(fields[3]));
  }
  TorchStorage storage = {std::string(heap.text(fields[2])), type->dtype, static_cast<uint64_t>(fields[4].integer)};
  checkedMul(storage.elements, dtypeSize(storage.dtype), "storage");
  const auto [it, inserted] = storage_of_.emplace(storage.key, static_cast<uint32_t>(storages_.size()));
  if (inserted) {
    storages_.push_back(std::move(storage));
  } else if (storages_[it->second].dtype != storage.dtype || storages_[it->second].elements != storage.elements) {
    corrupt(fmt::format("storage '{}' has two types or sizes", storage.key));
  }
  return object(kStorageTag, it->second);
}

const TorchStorage* TorchObjects::findStorage(std::string_view key) const {
  const auto it = storage_of_.find(std::string(key));
  return it == storage_of_.end() ? nullptr : &storages_[it->second];
}

const TorchTensor* TorchObjects::tensor(const PickleValue& value) const {
  return isObject(value, kTensorTag) ? &tensors_[value.index] : nullptr;
}

}  // namespace chorus
