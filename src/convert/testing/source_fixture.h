// A directory for models of other sources, and the checkpoints that they convert to.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "convert/convert_model.h"
#include "support/test_paths.h"

namespace chorus {

class SourceFixture : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "source.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // A model in Hugging Face's files that oracle scripts also wrote in other forms.
  static std::filesystem::path original(const std::string& model) {
    return test::sourceDir() / "tests/goldens/sources" / model;
  }
  static std::filesystem::path corpus(const std::string& target) { return test::sourceDir() / "tests/fuzz" / target; }

  static std::string contents(const std::filesystem::path& path) { return readFile(path, size_t{1} << 24); }
  // The config and the weights of the checkpoint that the path converts to.
  std::pair<std::string, std::string> checkpointOf(const std::filesystem::path& path,
                                                   const ConvertOptions& options = {}) {
    const std::filesystem::path out = dir_ / ("checkpoint" + std::to_string(++checkpoints_));
    convertModel(path, out, options);
    return {contents(out / "config.json"), contents(out / "rank0.safetensors")};
  }
  std::string refusalOf(const std::filesystem::path& path) {
    return errorOf([&] { checkpointOf(path); });
  }

  std::filesystem::path dir_;

 private:
  int checkpoints_ = 0;
};

}  // namespace chorus
