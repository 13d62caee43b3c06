// Engines for system tests, made by the real converter and builder in a directory that is removed with the process.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "convert/convert_model.h"
#include "engine/engine.h"
#include "lora/adapter.h"

namespace chorus::test {

// A new directory under the system's temporary one; removed with the object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Limits for goldens and the demo: small sizes, with LoRA and DoRA.
BuildConfig testBuildConfig();

// How an engine's weights are sharded over ranks.
struct Cut {
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  bool use_parallel_embedding = false;
  int32_t embedding_sharding_dim = 0;
  std::string name() const;  // "tp2_pp1"
};

// The quantisation that a golden's case.json asks for; nullopt if there is none.
std::optional<QuantiseOptions> goldenQuantisation(const std::filesystem::path& model_dir);

// Converts a Hugging Face directory to `dtype`, quantised as goldenQuantisation says, and builds it. Returns the engine
// directory. Calls with equal arguments build only once.
std::filesystem::path testEngine(const std::filesystem::path& model_dir, DType dtype,
                                 const BuildConfig& config = testBuildConfig(), const Cut& cut = {});

// The error line with which testEngine fails; empty if it does not.
std::string testEngineRefusal(const std::filesystem::path& model_dir, DType dtype, const BuildConfig& config,
                              const Cut& cut);

// Reads a PEFT directory as an adapter of the engine.
Adapter readTestAdapter(const std::filesystem::path& dir, const Engine& engine);

}  // namespace chorus::test
