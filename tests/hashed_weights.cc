#include "hashed_weights.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "checkpoint/weight_table.h"
#include "formats/safetensors.h"

namespace chorus::test {
namespace {

uint64_t startOf(const std::string& text) {
  uint64_t state = 0xcbf29ce484222325;
  for (const char byte : text) state = (state ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return state;
}

// splitmix64 of one state.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

float valueAt(uint64_t start, uint64_t index, double center, double scale) {
  int64_t k = -1020;
  for (uint64_t x = mixed(start + (index + 1) * 0x9e3779b97f4a7c15); x > 0; x >>= 8) k += static_cast<int64_t>(x & 255);
  return static_cast<float>(center + static_cast<double>(k) * scale);
}

DType dtypeOf(const std::string& name) {
  return name == "F32" ? DType::kFloat32 : name == "F16" ? DType::kFloat16 : DType::kBFloat16;
}

struct Tensor {
  SafetensorsWriter::Declaration declaration;
  double center = 0;
  double scale = 0;
};

// A row is [name, shape, scale, center]; the center may be missing. "{layer}" in a name stands for each layer.
std::vector<Tensor> tensorsOf(const Json& file) {
  const DType dtype = dtypeOf(file.at("dtype").get<std::string>());
  const auto prefix = file.at("prefix").get<std::string>();
  std::vector<Tensor> tensors;
  for (const Json& row : file.at("tensors")) {
    const std::string name = prefix + row.at(0).get<std::string>();
    const int32_t layers = layerName(name, 0) == name ? 1 : file.at("layers").get<int32_t>();
    for (int32_t layer = 0; layer < layers; ++layer) {
      tensors.push_back({{layerName(name, layer), dtype, row.at(1).get<std::vector<int64_t>>()},
                         row.size() > 3 ? row.at(3).get<double>() : 0.0,
                         row.at(2).get<double>()});
    }
  }
  return tensors;
}
}  // namespace

std::vector<float> hashedValues(const std::string& text, size_t count, double center, double scale) {
  const uint64_t start = startOf(text);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = valueAt(start, i, center, scale);
  return values;
}

void writeHashedWeights(const std::filesystem::path& golden, const std::filesystem::path& output) {
  const Json description = readJsonFile(golden / "weights.json");
  for (const Json& file : description.at("files")) {
    const auto name = file.at("file").get<std::string>();
    const std::string prefix = std::to_string(file.at("seed").get<int64_t>()) + "/" + name + "/";
    const std::vector<Tensor> tensors = tensorsOf(file);
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const Tensor& tensor : tensors) declarations.push_back(tensor.declaration);
    SafetensorsWriter writer(output / name, declarations);
    for (const auto& [declaration, center, scale] : tensors) {
      size_t count = 1;
      for (const int64_t extent : declaration.shape) count *= static_cast<size_t>(extent);
      const std::vector<float> values = hashedValues(prefix + declaration.name, count, center, scale);
      std::vector<std::byte> bytes(count * dtypeSize(declaration.dtype));
      convertElements(values.data(), DType::kFloat32, bytes.data(), declaration.dtype, count);
      writer.write(declaration.name, 0, bytes);
    }
    writer.finish();
  }
}

}  // namespace chorus::test
