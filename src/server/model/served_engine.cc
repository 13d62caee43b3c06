#include "server/model/served_engine.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/directory.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "checkpoint/quantisation.h"
#include "convert/convert_model.h"
#include "convert/sources/sources.h"
#include "engine/build.h"
#include "engine/engine.h"
#include "server/model/engine_cache.h"
#include "server/model/hub_cache.h"
#include "server/model/start_checks.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

BuildConfig buildConfigFor(const ServeOptions& options) {
  BuildConfig build;
  build.max_batch_size = options.max_batch_size.value_or(build.max_batch_size);
  build.max_num_tokens = options.max_num_tokens.value_or(build.max_num_tokens);
  build.max_seq_len = options.max_seq_len.value_or(0);
  build.max_input_len = 1 << 28;  // buildEngine limits it to max_seq_len
  build.lora_plugin = true;
  build.dora_plugin = true;
  build.max_lora_rank = options.max_lora_rank.value_or(build.max_lora_rank);
  return build;
}

EngineConfig checkGivenEngine(const ServeOptions& options) {
  const auto refuse = [](bool given, const char* flag) {
    if (given) {
      fail(ErrorCode::kInvalidArgument,
           "{} applies only to a Hugging Face directory; for --engine_dir, pass it to chorus convert or chorus build",
           flag);
    }
  };
  refuse(options.dtype != "auto", "--dtype");
  refuse(!options.quantize.empty(), "--quantize");
  refuse(!options.activations.empty(), "--activations");
  refuse(options.max_seq_len.has_value(), "--max_seq_len");
  if (options.tokenizer_directory.empty()) {
    fail(ErrorCode::kInvalidArgument, "--engine_dir needs --tokenizer_dir");
  }
  checkLoraDirectories(options);
  const EngineConfig engine = readEngineConfig(options.engine_directory);
  if (options.max_lora_rank && *options.max_lora_rank > engine.build.max_lora_rank) {
    fail(ErrorCode::kInvalidArgument,
         "--max_lora_rank {}: the engine {} was built for ranks of at most {}; lower it, or let chorus build "
         "make an engine for higher ranks",
         *options.max_lora_rank, options.engine_directory, engine.build.max_lora_rank);
  }
  return engine;
}

// The group size of the options. By default int8 has no groups, and int4 has the larger of 64 and 32 that divides the
// input size of every linear layer, or no groups if neither does.
int32_t groupSizeFor(const ServeOptions& options, const fs::path& model, const ConvertOptions& convert) {
  if (options.group_size) return std::max(0, *options.group_size);
  if (options.quantize == "int8") return 0;
  const SourceModel source = openSource(model, convert);
  for (const int32_t size : {64, 32}) {
    const bool divides = std::all_of(source.table.begin(), source.table.end(), [&](const WeightRow& row) {
      const bool is_grouped = row.quantisable && row.stage == Stage::kEveryLayer;
      return !is_grouped || row.shape[1] % size == 0;
    });
    if (divides) return size;
  }
  return 0;
}

// The directory of the tokenizer: the one that the options name, the model's, or a directory of the cache into which
// the files are copied that the model's archive holds. Its name is the hash of the files, so that it never changes.
fs::path tokenizerDirectory(const ServeOptions& options, const SourceReader& reader, const fs::path& model,
                            const fs::path& cache) {
  if (!options.tokenizer_directory.empty()) return hubSnapshotOf(options.tokenizer_directory);
  if (reader.tokenizer == nullptr) return model;
  if (fs::is_directory(model) && hasTokenizerFiles(*Directory::open(model))) return model;
  const auto files = reader.tokenizer(model);
  Sha256 hash;
  for (const auto& [name, content] : files) {
    hash.update(fmt::format("{} {} ", name, content.size()));
    hash.update(content);
  }
  constexpr size_t kDigits = 32;
  const fs::path directory = cache / "tokenizers" / hash.hex().substr(0, kDigits);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    fail(ErrorCode::kInvalidArgument, "--cache_dir: cannot create {}: {}", directory.string(), error.message());
  for (const auto& [name, content] : files) {
    if (!fs::exists(directory / name)) writeFileAtomically(directory / name, content);
  }
  return directory;
}

}  // namespace

ServedEngine locateEngine(const ServeOptions& options) {
  if (!options.engine_directory.empty()) {
    const EngineConfig engine = checkGivenEngine(options);
    const fs::path tokenizer = hubSnapshotOf(options.tokenizer_directory);
    TokenizerDirectory text = checkTokenizer(tokenizer, engine.model.vocab_size);
    return {options.engine_directory, tokenizer, text.codec, text.defaults, nullptr};
  }
  const fs::path model = hubSnapshotOf(options.model_directory);
  const SourceReader& reader = sourceReaderOf(model);
  reader.check(model);
  checkLoraDirectories(options);
  ConvertOptions convert;
  if (options.dtype != "auto") convert.dtype = dtypeFromName(options.dtype);
  BuildConfig build = buildConfigFor(options);
  const fs::path cache_root =
      options.cache_directory.empty() ? defaultCacheDirectory() : fs::path(options.cache_directory);
  const fs::path tokenizer = tokenizerDirectory(options, reader, model, cache_root);
  const auto cache = std::make_shared<EngineCache>(cache_root / "engines");
  std::string weights = options.dtype;
  if (!options.quantize.empty()) {
    const int32_t group = groupSizeFor(options, model, convert);
    convert.quantise = {.bits = options.quantize == "int4" ? 4 : 8, .group_size = group};
    weights += fmt::format(" {} group {}", options.quantize, group);
  }
  if (!options.activations.empty()) {
    build.activations = inputFormatFromName(options.activations);
    weights += " activations " + options.activations;
  }
  TokenizerDirectory text;
  uint64_t disk_bytes = 0;
  {
    const SourceModel source = openSource(model, convert);
    text = checkTokenizer(tokenizer, source.config.vocab_size);
    if (build.activations) {
      ModelConfig quantised = source.config;
      setActivations(quantised, *build.activations, "--activations");
    }
    checkMemory(options, source.table, source.config, build);
    disk_bytes = preparationBytes(source.table, source.config);
  }
  if (!cache->mayHold(model)) checkDiskSpace(cache->root(), disk_bytes);
  const EngineSource packed = {model, [=, &reader] { return reader.files(model); }, weights};
  const std::string key = cache->keyFor(packed);
  const auto ensure = [=] {
    cache->ensure(key, packed, [&](const fs::path& work, const fs::path& engine) {
      checkDiskSpace(cache->root(), disk_bytes);
      const auto begin = std::chrono::steady_clock::now();
      log::info("preparing {} for its first start", model.string());
      convertModel(model, work / "checkpoint", convert);
      buildEngine(work / "checkpoint", engine, build);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      log::info("prepared in {:.1f} s", took.count());
    });
    return cache->withLimits(key, build);
  };
  const fs::path engine = ensure();
  return {engine, tokenizer, text.codec, text.defaults, [=] {
            cache->discard(key);
            ensure();
          }};
}

}  // namespace chorus::server
