// Fixture that writes and reads a PEFT directory; shared by this folder's tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "formats/safetensors.h"
#include "lora/peft_reader.h"
#include "lora/testing/test_model.h"

namespace chorus {

class PeftDirectoryTest : public testing::Test {
 protected:
  PeftDirectoryTest() {
    std::string name = testing::TempDir() + "peft.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
    dir_ = name;
  }
  ~PeftDirectoryTest() override { std::filesystem::remove_all(dir_); }

  // Adds a tensor whose values count up from `first`.
  void put(const std::string& name, const std::vector<int64_t>& shape, float first = 1) {
    std::vector<float> values(
        static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
    std::iota(values.begin(), values.end(), first);
    tensors_[name] = {shape, values};
  }
  void save() {
    writeFileAtomically(dir_ / "adapter_config.json", config_.dump());
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const auto& [name, tensor] : tensors_) declarations.push_back({name, DType::kFloat32, tensor.first});
    SafetensorsWriter writer(dir_ / "adapter_model.safetensors", declarations);
    for (const auto& [name, tensor] : tensors_) writer.write(name, 0, std::as_bytes(std::span(tensor.second)));
    writer.finish();
  }
  Adapter read(int64_t max_rank = 0) {
    save();
    return readPeftAdapter(dir_, "a", {model_.config, model_.table, max_rank});
  }
  std::string refusal(int64_t max_rank = 0) {
    const std::string line = errorOf([&] { read(max_rank); });
    EXPECT_EQ(line.find('\n'), std::string::npos);
    return line;
  }

  std::filesystem::path dir_;
  TestModel model_;
  Json config_;
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> tensors_;
};

}  // namespace chorus
