#include "engine/engine_file.h"

#include <cstring>
#include <unordered_set>

#include "base/checked.h"
#include "base/json.h"
#include "engine/build_config.h"

namespace chorus {
namespace {

constexpr uint64_t kHeaderBytes = 16;
constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr const char* kKindNames[] = {"linear", "table", "vector"};

bool isFloat(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

void parseFormat(const Json& json, EngineTensor& tensor, std::string_view source) {
  const auto dtype = dtypeFromName(jsonGet<std::string>(json, "dtype", source));
  const bool quantised = dtype && isQuantised(*dtype) && tensor.kind == EngineTensorKind::kLinear;
  if (!dtype || !(isFloat(*dtype) || quantised)) {
    fail(ErrorCode::kCorrupt, "{}: {} has a dtype that engines do not hold", source, tensor.name);
  }
  tensor.dtype = *dtype;
  if (!quantised) return;
  tensor.group = jsonGet<int64_t>(json, "group", source);
  const auto scales = dtypeFromName(jsonGet<std::string>(json, "scale_dtype", source));
  if ((tensor.group != 0 && tensor.group != 32 && tensor.group != 64 && tensor.group != 128) || !scales ||
      !isFloat(*scales)) {
    fail(ErrorCode::kCorrupt, "{}: {} has groups or scales that engines do not hold", source, tensor.name);
  }
  tensor.scale_dtype = *scales;
  const auto activations = jsonGetOr<std::string>(json, "activations", "int16", source);
  const auto inputs = inputFormatFromName(activations);
  const bool per_token = inputs == InputFormat::kInt8PerToken;
  if (!inputs || (*inputs != InputFormat::kInt16 && *scales == DType::kFloat32) ||
      (per_token && (tensor.dtype != DType::kInt8 || tensor.group != 0))) {
    fail(ErrorCode::kCorrupt, "{}: {} has activations '{}' that engines do not hold for weights of its format", source,
         tensor.name, activations);
  }
  tensor.activations = *inputs;
}

EngineTensor parseTensor(const Json& json, uint64_t file_size, std::string_view source, const WeightPacker& packer) {
  EngineTensor tensor;
  tensor.name = jsonGet<std::string>(json, "name", source);
  const auto kind = jsonGet<std::string>(json, "kind", source);
  size_t k = 0;
  while (k < std::size(kKindNames) && kind != kKindNames[k]) ++k;
  if (k == std::size(kKindNames)) fail(ErrorCode::kCorrupt, "{}: {} is of unknown kind", source, tensor.name);
  tensor.kind = static_cast<EngineTensorKind>(k);
  parseFormat(json, tensor, source);
  tensor.rows = jsonGet<int64_t>(json, "rows", source);
  tensor.cols = jsonGet<int64_t>(json, "cols", source);
  tensor.experts = jsonGetOr<int64_t>(json, "experts", 0, source);
  tensor.offset = jsonGet<uint64_t>(json, "offset", source);
  tensor.bytes = jsonGet<uint64_t>(json, "bytes", source);
  if (const uint64_t needed = tensorBytes(tensor, packer); tensor.bytes != needed) {
    fail(ErrorCode::kCorrupt, "{}: {} has {} bytes where its shape needs {}", source, tensor.name, tensor.bytes,
         needed);
  }
  const bool inside = tensor.offset <= file_size && tensor.bytes <= file_size - tensor.offset;
  if (!inside || tensor.offset % kEngineFileAlignment != 0 || tensor.offset == 0) {
    fail(ErrorCode::kCorrupt, "{}: {} lies outside the file (truncated? build the engine again)", source, tensor.name);
  }
  return tensor;
}
}  // namespace

uint64_t tensorBytes(const EngineTensor& tensor, const WeightPacker& packer) {
  constexpr int64_t kMaxExtent = int64_t{1} << 40;
  if (tensor.rows <= 0 || tensor.cols <= 0 || tensor.rows > kMaxExtent || tensor.cols > kMaxExtent) {
    fail(ErrorCode::kCorrupt, "{}: shape [{}, {}] is out of range", tensor.name, tensor.rows, tensor.cols);
  }
  const bool may_have_experts = tensor.kind == EngineTensorKind::kLinear && tensor.experts <= kMaxExtent;
  if (tensor.experts != 0 && !(may_have_experts && tensor.experts > 0)) {
    fail(ErrorCode::kCorrupt, "{}: {} experts are out of range", tensor.name, tensor.experts);
  }
  const auto rows = static_cast<uint64_t>(tensor.rows);
  const auto cols = static_cast<uint64_t>(tensor.cols);
  if (tensor.kind != EngineTensorKind::kLinear) {
    return checkedMul(checkedMul(rows, cols, tensor.name.c_str()), dtypeSize(tensor.dtype), tensor.name.c_str());
  }
  if (tensor.experts == 0) return static_cast<uint64_t>(packer.bytes(tensor.format(), tensor.rows, tensor.cols));
  const auto stride = static_cast<uint64_t>(packer.expertStride(tensor.format(), tensor.rows, tensor.cols));
  return checkedMul(stride, static_cast<uint64_t>(tensor.experts), tensor.name.c_str());
}

std::vector<EngineTensor> parseEngineFile(std::span<const std::byte> file, std::string_view source,
                                          const WeightPacker& packer) {
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kEngineFileMagic.data(), kEngineFileMagic.size()) != 0) {
    fail(ErrorCode::kCorrupt, "{}: not an engine rank file", source);
  }
  uint64_t index_bytes;
  std::memcpy(&index_bytes, file.data() + kEngineFileMagic.size(), sizeof index_bytes);
  if (index_bytes > kMaxIndexBytes || index_bytes > file.size() - kHeaderBytes) {
    fail(ErrorCode::kCorrupt, "{}: the index of {} bytes lies outside the file", source, index_bytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kHeaderBytes, index_bytes);
  const Json index = parseJson(text, source);
  const auto version = jsonGet<int64_t>(index, "packing_version", source);
  if (version != kPackingVersion) {
    fail(ErrorCode::kUnsupported, "{}: packing version {}, this build reads {}; build the engine again", source,
         version, kPackingVersion);
  }
  const auto list = index.find("tensors");
  if (list == index.end() || !list->is_array()) fail(ErrorCode::kCorrupt, "{}: 'tensors' is missing", source);
  std::vector<EngineTensor> tensors;
  std::unordered_set<std::string> names;
  for (const Json& item : *list) {
    tensors.push_back(parseTensor(item, file.size(), source, packer));
    if (!names.insert(tensors.back().name).second) {
      fail(ErrorCode::kCorrupt, "{}: {} stands twice in the index", source, tensors.back().name);
    }
  }
  return tensors;
}

std::string engineFileHead(std::span<const EngineTensor> tensors) {
  Json list = Json::array();
  for (const EngineTensor& t : tensors) {
    list.push_back({{"name", t.name},
                    {"kind", kKindNames[static_cast<size_t>(t.kind)]},
                    {"dtype", dtypeName(t.dtype)},
                    {"rows", t.rows},
                    {"cols", t.cols},
                    {"offset", t.offset},
                    {"bytes", t.bytes}});
    if (isQuantised(t.dtype)) {
      list.back()["group"] = t.group;
      list.back()["scale_dtype"] = dtypeName(t.scale_dtype);
      if (t.activations != InputFormat::kInt16) list.back()["activations"] = inputFormatName(t.activations);
    }
    if (t.experts > 0) list.back()["experts"] = t.experts;
  }
  const std::string index = Json{{"packing_version", kPackingVersion}, {"tensors", std::move(list)}}.dump();
  const uint64_t index_bytes = index.size();
  std::string head(kEngineFileMagic);
  head.append(reinterpret_cast<const char*>(&index_bytes), sizeof index_bytes);
  return head + index;
}

}  // namespace chorus
