// Builds NeMo's archives, so that tests and goldens need no files of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/testing/tar_test_file.h"
#include "formats/testing/torch_test_file.h"

namespace chorus {

struct TestTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// A file of torch.save with these float32 tensors.
inline std::string torchFileOf(const std::vector<TestTensor>& tensors) {
  const std::string floats = pickled::global("torch", "FloatStorage");
  std::vector<std::pair<std::string, std::string>> items;
  TestZip zip;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TestTensor& tensor = tensors[i];
    std::vector<int32_t> shape(tensor.shape.begin(), tensor.shape.end()), strides(shape.size(), 1);
    for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    const std::string key = std::to_string(i);
    const auto count = static_cast<int32_t>(tensor.values.size());
    items.emplace_back(tensor.name, pickled::tensor(pickled::storage(floats, key, count), 0, shape, strides));
    zip.entries.push_back(
        {"model_weights/data/" + key,
         {reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float)}});
  }
  zip.entries.insert(zip.entries.begin(), {"model_weights/data.pkl", pickled::whole(pickled::dict(items))});
  zip.entries.push_back({"model_weights/version", "3\n"});
  return zip.build();
}

// One rank: {{"model_weights.ckpt", tensors}}; see formats/nemo_layout.h for the names of several ranks' checkpoints.
struct TestNemo {
  std::string config;  // model_config.yaml
  std::vector<std::pair<std::string, std::vector<TestTensor>>> checkpoints;
  std::vector<TestTar::Entry> others = {};

  std::string build() const {
    TestTar tar;
    tar.entries.push_back({"./", "", '5'});
    tar.entries.push_back({"./model_config.yaml", config});
    for (const auto& [name, tensors] : checkpoints) tar.entries.push_back({"./" + name, torchFileOf(tensors)});
    tar.entries.insert(tar.entries.end(), others.begin(), others.end());
    return tar.build();
  }
};

}  // namespace chorus
