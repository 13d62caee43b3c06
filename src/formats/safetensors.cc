#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace chorus {
namespace {

constexpr size_t kPrefixBytes = 8;
// The reference implementation's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 16;

struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr DTypeName kDTypeNames[] = {
    {"F32", DType::kFloat32}, {"F16", DType::kFloat16}, {"BF16", DType::kBFloat16},     {"F64", DType::kFloat64},
    {"I8", DType::kInt8},     {"U8", DType::kUint8},    {"I16", DType::kInt16},         {"I32", DType::kInt32},
    {"I64", DType::kInt64},   {"BOOL", DType::kBool},   {"F8_E4M3", DType::kFloat8E4M3}};

uint64_t littleEndian64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kPrefixBytes; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

struct ParsedTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t begin;
  uint64_t end;
};

ParsedTensor parseTensor(const std::string& name, const Json& value, uint64_t data_bytes, std::string_view source) {
  const std::string where = fmt::format("{}: tensor '{}'", source, name);
  if (!value.is_object() || value.size() != 3) {
    fail(ErrorCode::kCorrupt, "{}: expected an object of dtype, shape and data_offsets", where);
  }
  ParsedTensor tensor{.name = name};
  const auto dtype_name = jsonGet<std::string>(value, "dtype", where);
  const auto dtype = std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                                  [&](const DTypeName& d) { return d.name == dtype_name; });
  if (dtype == std::end(kDTypeNames)) {
    fail(ErrorCode::kUnsupported, "{}: dtype {} is not supported", where, dtype_name);
  }
  tensor.dtype = dtype->dtype;

  const auto shape = value.find("shape");
  if (shape == value.end() || !shape->is_array() || shape->size() > kMaxRank) {
    fail(ErrorCode::kCorrupt, "{}: shape must be a list of at most {} sizes", where, kMaxRank);
  }
  for (const Json& extent : *shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      fail(ErrorCode::kCorrupt, "{}: shape must hold sizes of at least 0", where);
    }
    tensor.shape.push_back(extent.get<int64_t>());
  }

  const auto offsets = value.find("data_offsets");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    fail(ErrorCode::kCorrupt, "{}: data_offsets must be two sizes", where);
  }
  tensor.begin = (*offsets)[0].get<uint64_t>();
  tensor.end = (*offsets)[1].get<uint64_t>();
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    fail(ErrorCode::kCorrupt,
         "{}: bytes {} to {} lie outside the file's {} bytes of data; the file is truncated or damaged", where,
         tensor.begin, tensor.end, data_bytes);
  }
  const uint64_t expected =
      checkedMul(checkedElementCount(tensor.shape, where.c_str()), dtypeSize(tensor.dtype), where.c_str());
  if (tensor.end - tensor.begin != expected) {
    fail(ErrorCode::kCorrupt, "{}: shape {} of {} needs {} bytes, data_offsets give {}", where, shapeText(tensor.shape),
         dtype_name, expected, tensor.end - tensor.begin);
  }
  return tensor;
}

// The format allows no hole and no overlap: nothing may hide between tensors.
void checkContiguous(const std::vector<ParsedTensor>& sorted, uint64_t data_bytes, std::string_view source) {
  uint64_t position = 0;
  for (const ParsedTensor& tensor : sorted) {
    if (tensor.begin != position) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' begins at byte {} of the data where {} was expected ({})", source,
           tensor.name, tensor.begin, position, tensor.begin < position ? "tensors overlap" : "a hole");
    }
    position = tensor.end;
  }
  if (position != data_bytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes follow the last tensor", source, data_bytes - position);
  }
}
}  // namespace

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string_view source) {
  if (bytes.size() < kPrefixBytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes are too few for a safetensors file", source, bytes.size());
  }
  const uint64_t header_bytes = littleEndian64(bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kPrefixBytes) {
    fail(ErrorCode::kCorrupt, "{}: header of {} bytes in a file of {}; not a safetensors file, or a truncated one",
         source, header_bytes, bytes.size());
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, header_bytes);
  if (header.empty() || header.front() != '{') {
    fail(ErrorCode::kCorrupt, "{}: the safetensors header does not begin with '{{'", source);
  }
  const Json json = parseJson(header, source, {.max_bytes = kMaxHeaderBytes, .max_depth = 4, .unique_keys = true});

  Safetensors result;
  result.source_ = source;
  result.file_ = bytes;
  const auto data = bytes.subspan(kPrefixBytes + header_bytes);
  std::vector<ParsedTensor> tensors;
  for (const auto& [name, value] : json.items()) {
    if (name != "__metadata__") {
      tensors.push_back(parseTensor(name, value, data.size(), source));
      continue;
    }
    if (!value.is_object()) fail(ErrorCode::kCorrupt, "{}: __metadata__ must be an object of strings", source);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(ErrorCode::kCorrupt, "{}: __metadata__ '{}' must be a string", source, key);
      result.metadata_.emplace(key, text.get<std::string>());
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const ParsedTensor& a, const ParsedTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  checkContiguous(tensors, data.size(), source);
  for (ParsedTensor& tensor : tensors) {
    const auto bytes_of = data.subspan(tensor.begin, tensor.end - tensor.begin);
    result.add(std::move(tensor.name), {tensor.dtype, std::move(tensor.shape), bytes_of});
  }
  return result;
}

Safetensors Safetensors::open(const std::filesystem::path& path) {
  auto map = std::make_shared<const MappedFile>(path);
  Safetensors result = parse(map->bytes(), path.string());
  result.keep(std::move(map));
  return result;
}

}  // namespace chorus
