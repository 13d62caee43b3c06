#include "convert/sources/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class SourcesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "sources.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  // The refusal of a new directory with these files.
  std::string refusalOf(const std::vector<std::string>& files) {
    const fs::path model = dir_ / std::to_string(++models_);
    for (const std::string& file : files) {
      fs::create_directories((model / file).parent_path());
      std::ofstream(model / file) << "{}";
    }
    return errorOf([&] { openSource(model, {}); });
  }

  fs::path dir_;
  int models_ = 0;
};

TEST_F(SourcesTest, UnsupportedKindsOfSourcesAreNamed) {
  EXPECT_THAT(refusalOf({"model_weights/__0_0.distcp", "model_weights/.metadata", "model_config.yaml"}),
              HasSubstr("torch_dist"));
  EXPECT_THAT(refusalOf({"__0_0.distcp"}), HasSubstr("torch_dist"));
  EXPECT_THAT(refusalOf({"model_weights/model.decoder.weight/.zarray", "model_weights/model.decoder.weight/0.0"}),
              HasSubstr("zarr"));
  EXPECT_THAT(refusalOf({"weights/module.embedding/.zarray"}), HasSubstr("zarr"));
  EXPECT_THAT(refusalOf({"default/manifest.ocdbt", "_CHECKPOINT_METADATA"}), HasSubstr("Orbax"));
  EXPECT_THAT(refusalOf({"items/_METADATA", "items/d/0"}), HasSubstr("Orbax"));
  EXPECT_THAT(refusalOf({"adapter_config.json", "adapter_model.safetensors"}), HasSubstr("a PEFT adapter"));
  EXPECT_THAT(refusalOf({"model-Q4_K_M.gguf"}), HasSubstr("GGUF"));
  EXPECT_THAT(refusalOf({"onnx.txt", "decoder.onnx"}), HasSubstr("ONNX"));
}

TEST_F(SourcesTest, UnknownSourcesAreRefusedWithTheListOfKnownKinds) {
  EXPECT_THAT(refusalOf({"notes.txt"}),
              AllOf(HasSubstr("holds no model that is known ("), HasSubstr("Hugging Face model")));
  EXPECT_THAT(errorOf([&] { openSource(dir_ / "none", {}); }), HasSubstr("none: no such file or directory"));
}

TEST_F(SourcesTest, ADirectoryOfAdaptersIsRefusedWithTheirNames) {
  EXPECT_THAT(refusalOf({"b/adapter_config.json", "a/adapter_config.json", ".c/adapter_config.json", "d/notes.txt"}),
              HasSubstr("holds adapters (a, b), not a model; serve them with --lora_dir"));
  EXPECT_THAT(refusalOf({"a/adapter_config.json", "a/config.json"}), HasSubstr("holds adapters (a), not a model"));
  EXPECT_THAT(refusalOf({"base/config.json", "base/model.safetensors", "a/adapter_config.json"}),
              HasSubstr("holds no model that is known"));
}

TEST_F(SourcesTest, TheNameOfAModelOnHuggingFaceGetsAdvice) {
  EXPECT_EQ(errorOf([&] { sourceReaderOf("no-such-org/some-model"); }),
            "no-such-org/some-model: no such file or directory; models are not downloaded; give a local directory");
  for (const char* path :
       {"no-such-model", "/no-such-org/model", "./no-such-model", "../none", "~/none", "no/a/b", "no-such-org/"}) {
    EXPECT_EQ(missingModelText(path), "no such file or directory") << path;
  }
  EXPECT_EQ(missingModelText(dir_ / "none"), "no such file or directory");
}

}  // namespace
}  // namespace chorus
