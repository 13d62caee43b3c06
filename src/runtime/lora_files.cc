#include "runtime/lora_files.h"

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "convert/lora_convert.h"
#include "formats/npy.h"

namespace chorus {
namespace {

executor::DataType typeOf(DType dtype, const std::filesystem::path& path) {
  switch (dtype) {
    case DType::kFloat32:
      return executor::DataType::kFP32;
    case DType::kFloat16:
      return executor::DataType::kFP16;
    case DType::kBFloat16:
      return executor::DataType::kBF16;
    case DType::kInt32:
      return executor::DataType::kINT32;
    default:
      fail(ErrorCode::kUnsupported, "{}: data type {} is not supported for LoRA tensors", path.string(),
           dtypeName(dtype));
  }
}

executor::Tensor tensorOf(const FileContents& file, const std::filesystem::path& path) {
  const NpyArray array = parseNpy(file.bytes(), path.string());
  return executor::Tensor::copyOf(typeOf(array.dtype, path), array.data.data(), array.shape);
}
}  // namespace

bool holdsLoraFiles(const std::filesystem::path& dir) {
  return std::filesystem::exists(dir / kLoraConfigFile) || std::filesystem::exists(dir / kLoraWeightsFile);
}

LoraTensors readLoraFiles(const std::filesystem::path& dir) {
  const auto weights_path = dir / kLoraWeightsFile, config_path = dir / kLoraConfigFile;
  const auto [weights, config] = readUnchanged(openerOf(dir), [&](FileReader& files) {
    const size_t most = availableMemory();
    return std::pair(files.read(kLoraWeightsFile, most), files.read(kLoraConfigFile, most));
  });
  return {tensorOf(*weights, weights_path), tensorOf(*config, config_path)};
}

}  // namespace chorus
