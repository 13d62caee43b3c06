// Inspects single files, which are identified by their first bytes.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "cli/inspect_paths.h"
#include "convert/sources/sources.h"
#include "engine/build_config.h"
#include "engine/engine_file.h"
#include "formats/npy.h"
#include "formats/tensor_file.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

void describeTensors(const std::map<std::string, uint64_t>& bytes_of_dtype, const Json& tensors, Inspection& found) {
  std::string dtypes;
  uint64_t bytes = 0;
  for (const auto& [dtype, size] : bytes_of_dtype) {
    dtypes += fmt::format("{}{} {}", dtypes.empty() ? "" : ", ", bytesText(size), dtype);
    bytes += size;
  }
  found.add("tensors", tensors, std::to_string(tensors.size()));
  found.addBytes("bytes of tensors", bytes);
  found.add("dtypes", bytes_of_dtype, dtypes.empty() ? "none" : dtypes);
}

// Reads .safetensors files as safetensors and all others as PyTorch's.
void inspectTensorFile(const fs::path& path, Inspection& found) {
  found.setKind(path.extension() == ".safetensors" ? "safetensors file" : "PyTorch file");
  const TensorFile file = openTensorFile(path);
  std::map<std::string, uint64_t> bytes;
  Json tensors = Json::object();
  for (const std::string& name : file.names()) {
    const TensorView& tensor = *file.find(name);
    const std::string dtype(dtypeName(tensor.dtype));
    bytes[dtype] += tensor.bytes.size();
    tensors[name] = {{"dtype", dtype}, {"shape", tensor.shape}};
  }
  describeTensors(bytes, tensors, found);
}

void inspectEngineFile(const MappedFile& file, Inspection& found) {
  found.setKind("engine file");
  std::map<std::string, uint64_t> bytes;
  Json tensors = Json::object();
  for (const EngineTensor& tensor :
       parseEngineFile(file.bytes(), file.path().string(), weightPacker(BuildConfig{}.backend))) {
    const std::string dtype(dtypeName(tensor.dtype));
    bytes[dtype] += tensor.bytes;
    tensors[tensor.name] = {{"dtype", dtype}, {"shape", {tensor.rows, tensor.cols}}};
  }
  describeTensors(bytes, tensors, found);
}

void inspectNpy(const MappedFile& file, Inspection& found) {
  found.setKind("npy file");
  const NpyArray array = parseNpy(file.bytes(), file.path().string());
  found.add("dtype", std::string(dtypeName(array.dtype)));
  found.add("shape", array.shape, shapeText(array.shape));
}
}  // namespace

void inspectFile(const fs::path& path, Inspection& found) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const auto starts = [&](std::string_view magic) {
    return bytes.size() >= magic.size() &&
           std::equal(magic.begin(), magic.end(), bytes.begin(),
                      [](char c, std::byte b) { return static_cast<std::byte>(c) == b; });
  };
  if (starts(kEngineFileMagic)) return inspectEngineFile(file, found);
  if (starts("\x93NUMPY")) return inspectNpy(file, found);
  if (path.extension() == ".engine") return inspectEngineFile(file, found);
  if (path.extension() == ".npy") return inspectNpy(file, found);
  constexpr std::string_view kTensorEndings[] = {".safetensors", ".bin", ".pt", ".pth", ".ckpt"};
  const std::string ending = path.extension().string();
  if (starts("PK\x03\x04") || std::count(std::begin(kTensorEndings), std::end(kTensorEndings), ending) > 0) {
    return inspectTensorFile(path, found);
  }
  refuseUnsupportedSource(path);
  fail(ErrorCode::kUnsupported, "{}: not a safetensors, PyTorch, npy or engine file", path.string());
}

}  // namespace chorus
