#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/git_lfs.h"
#include "base/json.h"

namespace chorus {
namespace {

constexpr size_t kPrefixBytes = 8;

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

// Builds the table of tensors while the header's JSON is parsed, without a JSON document in memory.
class HeaderReader final : public JsonEvents {
 public:
  HeaderReader(uint64_t data_bytes, std::string_view source) : data_bytes_(data_bytes), source_(source) {}

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader) {
      place_ = tensor_.name == "__metadata__" ? Place::kMetadata : Place::kTensor;
    } else {
      refuseValue();
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor) finishTensor();
    place_ = place_ == Place::kHeader ? Place::kOutside : Place::kHeader;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == Field::kDType) refuseValue();
    place_ = Place::kNumbers;
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    if (field_ == Field::kOffsets && numbers_ != 2) refuse("data_offsets must be two sizes");
    return true;
  }
  bool key(string_t& key) override {
    if (place_ == Place::kHeader) {
      if (tensors.size() == Safetensors::kMaxTensors) {
        fail(ErrorCode::kUnsupported, "{}: more than {} tensors", source_, Safetensors::kMaxTensors);
      }
      tensor_ = {.name = std::move(key)};
      dtype_name_.clear();
      seen_ = 0;
      return true;
    }
    if (place_ == Place::kMetadata) {
      metadata_key_ = std::move(key);
      return true;
    }
    field_ = key == "dtype"          ? Field::kDType
             : key == "shape"        ? Field::kShape
             : key == "data_offsets" ? Field::kOffsets
                                     : refuseTensor();
    const unsigned bit = 1U << static_cast<unsigned>(field_);
    if ((seen_ & bit) != 0) fail(ErrorCode::kCorrupt, "{}: key '{}' appears twice", where(), key);
    seen_ |= bit;
    numbers_ = 0;
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      if (!metadata.try_emplace(metadata_key_, std::move(text)).second) {
        fail(ErrorCode::kCorrupt, "{}: key '{}' appears twice", source_, metadata_key_);
      }
      return true;
    }
    if (place_ != Place::kTensor || field_ != Field::kDType) refuseValue();
    dtype_name_ = std::move(text);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kNumbers) refuseValue();
    if (field_ == Field::kShape) {
      if (numbers_ == kMaxTensorRank) refuse(fmt::format("shape must be a list of at most {} sizes", kMaxTensorRank));
      if (value > static_cast<uint64_t>(INT64_MAX)) refuse("shape must hold sizes of at least 0");
      tensor_.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (numbers_ == 2) refuse("data_offsets must be two sizes");
      (numbers_ == 0 ? tensor_.begin : tensor_.end) = value;
    }
    ++numbers_;
    return true;
  }
  bool null() override { refuseValue(); }
  bool boolean(bool) override { refuseValue(); }
  bool number_integer(number_integer_t) override { refuseValue(); }
  bool number_float(number_float_t, const string_t&) override { refuseValue(); }

  std::vector<ParsedTensor> tensors;
  std::map<std::string, std::string> metadata;

 private:
  enum class Place { kOutside, kHeader, kMetadata, kTensor, kNumbers };
  enum class Field { kDType, kShape, kOffsets };
  static constexpr unsigned kAllFields = 7;

  std::string where() const { return fmt::format("{}: tensor '{}'", source_, tensor_.name); }
  [[noreturn]] void refuse(std::string_view reason) const { fail(ErrorCode::kCorrupt, "{}: {}", where(), reason); }
  [[noreturn]] Field refuseTensor() const { refuse("expected an object of dtype, shape and data_offsets"); }
  // Throws the Error for a value whose type does not fit the current place.
  [[noreturn]] void refuseValue() const {
    switch (place_) {
      case Place::kMetadata:
        fail(ErrorCode::kCorrupt, "{}: __metadata__ '{}' must be a string", source_, metadata_key_);
      case Place::kNumbers:
        refuse(field_ == Field::kShape ? "shape must hold sizes of at least 0" : "data_offsets must be two sizes");
      case Place::kTensor:
        refuse(field_ == Field::kDType   ? "dtype must be a string"
               : field_ == Field::kShape ? "shape must be a list of sizes"
                                         : "data_offsets must be two sizes");
      default:
        if (tensor_.name == "__metadata__") {
          fail(ErrorCode::kCorrupt, "{}: __metadata__ must be an object of strings", source_);
        }
        refuseTensor();
    }
  }

  void finishTensor() {
    if (seen_ != kAllFields) refuseTensor();
    const auto* const dtype = std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                                           [&](const DTypeName& d) { return d.name == dtype_name_; });
    if (dtype == std::end(kDTypeNames)) {
      fail(ErrorCode::kUnsupported, "{}: dtype {} is not supported", where(), dtype_name_);
    }
    tensor_.dtype = dtype->dtype;
    if (tensor_.begin > tensor_.end || tensor_.end > data_bytes_) {
      fail(ErrorCode::kCorrupt,
           "{}: bytes {} to {} lie outside the file's {} bytes of data; the file is truncated or damaged", where(),
           tensor_.begin, tensor_.end, data_bytes_);
    }
    const std::string what = where();
    const uint64_t expected =
        checkedMul(checkedElementCount(tensor_.shape, what.c_str()), dtypeSize(tensor_.dtype), what.c_str());
    if (tensor_.end - tensor_.begin != expected) {
      fail(ErrorCode::kCorrupt, "{}: shape {} of {} needs {} bytes, data_offsets give {}", what,
           shapeText(tensor_.shape), dtype_name_, expected, tensor_.end - tensor_.begin);
    }
    tensors.push_back(std::move(tensor_));
  }

  uint64_t data_bytes_;
  std::string_view source_;
  Place place_ = Place::kOutside;
  ParsedTensor tensor_;  // the tensor that is being read
  Field field_ = Field::kDType;
  unsigned seen_ = 0;   // bit set of the tensor's fields (1 << Field) read so far
  size_t numbers_ = 0;  // numbers read so far in the current field
  std::string dtype_name_, metadata_key_;
};

// The JSON text in `header`, which begins with the 8 bytes of the header size.
std::string_view textOf(std::span<const std::byte> header) {
  return {reinterpret_cast<const char*>(header.data()) + kPrefixBytes, header.size() - kPrefixBytes};
}

void checkNames(const std::vector<ParsedTensor>& tensors, std::string_view source) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const ParsedTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::kCorrupt, "{}: key '{}' appears twice", source, *twice);
}

// The format allows no hole and no overlap between tensors, so a file has no hidden data.
void checkContiguous(const std::vector<ParsedTensor>& sorted, uint64_t data_bytes, std::string_view source) {
  uint64_t position = 0;
  for (const ParsedTensor& tensor : sorted) {
    if (tensor.begin != position) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' begins at byte {} of the data; expected byte {} ({})", source,
           tensor.name, tensor.begin, position, tensor.begin < position ? "tensors overlap" : "a hole");
    }
    position = tensor.end;
  }
  if (position != data_bytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes follow the last tensor", source, data_bytes - position);
  }
}
}  // namespace

size_t Safetensors::headerBytes(std::span<const std::byte> first, uint64_t file_bytes, std::string_view source) {
  refuseGitLfsPointer(first, source);
  if (first.size() < kPrefixBytes || file_bytes < kPrefixBytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes are too few for a safetensors file", source, first.size());
  }
  const uint64_t header_bytes = littleEndian64(first);
  if (header_bytes > file_bytes - kPrefixBytes) {
    fail(ErrorCode::kCorrupt, "{}: header of {} bytes in a file of {}; not a safetensors file, or a truncated one",
         source, header_bytes, file_bytes);
  }
  if (header_bytes > kMaxHeaderBytes) {
    fail(ErrorCode::kUnsupported, "{}: the safetensors header has {} bytes; the limit is {}", source, header_bytes,
         kMaxHeaderBytes);
  }
  return kPrefixBytes + static_cast<size_t>(header_bytes);
}

void Safetensors::read(std::string_view header, std::span<const std::byte> data, std::string_view source) {
  if (header.empty() || header.front() != '{') {
    fail(ErrorCode::kCorrupt, "{}: the safetensors header does not begin with '{{'", source);
  }
  HeaderReader reader(data.size(), source);
  parseJsonEvents(header, source, {.max_bytes = kMaxHeaderBytes, .max_depth = 4}, reader);
  source_ = source;
  metadata_ = std::move(reader.metadata);
  std::vector<ParsedTensor>& tensors = reader.tensors;
  checkNames(tensors, source);
  std::sort(tensors.begin(), tensors.end(), [](const ParsedTensor& a, const ParsedTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  checkContiguous(tensors, data.size(), source);
  in_place_ = true;
  for (ParsedTensor& tensor : tensors) {
    if ((kPrefixBytes + header.size() + tensor.begin) % dtypeSize(tensor.dtype) != 0) in_place_ = false;
    const auto bytes_of = data.subspan(tensor.begin, tensor.end - tensor.begin);
    add(std::move(tensor.name), {tensor.dtype, std::move(tensor.shape), bytes_of});
  }
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string_view source) {
  const size_t header_bytes = headerBytes(bytes, bytes.size(), source);
  Safetensors result;
  result.file_ = bytes;
  result.file_size_ = bytes.size();
  result.read(textOf(bytes.first(header_bytes)), bytes.subspan(header_bytes), source);
  return result;
}

Safetensors Safetensors::parseHeader(std::span<const std::byte> head, uint64_t file_bytes, std::string_view source) {
  const size_t header_bytes = headerBytes(head, file_bytes, source);
  if (head.size() < header_bytes) {
    fail(ErrorCode::kCorrupt, "{}: cut to {} bytes while it was read", source, head.size());
  }
  const uint64_t data_bytes = file_bytes - header_bytes;
  Safetensors result;
  result.file_size_ = file_bytes;
  result.replaceValues(data_bytes);
  result.read(textOf(head.first(header_bytes)), result.zeros_.first(data_bytes), source);
  return result;
}

Safetensors Safetensors::open(const std::filesystem::path& path) {
  auto map = std::make_shared<const MappedFile>(path);
  Safetensors result = parse(map->bytes(), path.string());
  result.keep(std::move(map));
  return result;
}

}  // namespace chorus
