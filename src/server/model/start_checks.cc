#include "server/model/start_checks.h"

#include <algorithm>

#include "base/checked.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/units.h"
#include "checkpoint/shard.h"
#include "engine/engine_layout.h"
#include "runtime/memory_needs.h"
#include "server/model/adapter_roots.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

// More than one, so that an adapter that loads slowly does not delay small ones (adapter_loader.h).
constexpr int32_t kAdapterLoaders = 2;

// The engine that this program will build.
uint64_t engineBytes(const WeightTable& table, const ModelConfig& config) {
  const WeightPacker& packer = weightPacker(BuildConfig{}.backend);
  uint64_t bytes = 0;
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) {
    bytes = checkedAdd(bytes, packedWeightBytes(table, config, rank, packer), "the engine");
  }
  return bytes;
}

uint64_t checkpointBytes(const WeightTable& table, const ModelConfig& config) {
  uint64_t bytes = 0;
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) {
    for (const RankTensor& tensor : rankTensors(table, config, rank)) {
      const uint64_t elements = checkedElementCount(tensor.shape, "the checkpoint");
      bytes = checkedAdd(bytes, checkedMul(elements, dtypeSize(tensor.dtype), "the checkpoint"), "the checkpoint");
    }
  }
  return bytes;
}

}  // namespace

executor::PeftCacheConfig adapterCacheConfig(const ServeOptions& options) {
  executor::PeftCacheConfig adapters;
  adapters.setMaxHostAdapters(options.max_cpu_loras);
  adapters.setMaxDeviceAdapters(options.max_gpu_loras);
  adapters.setNumPutWorkers(kAdapterLoaders);
  adapters.setRejectWhenFull(options.adapter_overload == "reject");
  if (options.lora_storage == "int8") adapters.setLoraStorage(executor::LoraStorage::kINT8);
  if (options.lora_load_memory_mib) adapters.setLoadMemory(static_cast<size_t>(*options.lora_load_memory_mib) << 20);
  if (options.max_lora_rank) adapters.setMaxAdapterSize(*options.max_lora_rank);
  return adapters;
}

void checkLoraDirectories(const ServeOptions& options) {
  if (options.enable_admin && !servesAdapters(options)) {
    fail(ErrorCode::kInvalidArgument,
         "--enable_admin: no adapter could be loaded; give --lora_dir, --lora_allowed_roots or --lora_upload_dir");
  }
  if (!options.enable_admin && !options.lora_upload_dir.empty()) {
    fail(ErrorCode::kInvalidArgument, "--lora_upload_dir has no effect without --enable_admin");
  }
  if (!options.enable_admin && !options.lora_allowed_roots.empty()) {
    fail(ErrorCode::kInvalidArgument, "--lora_allowed_roots has no effect without --enable_admin");
  }
  if (!servesAdapters(options)) return;
  AdapterRoots(options.lora_directories, options.lora_dir_links == "follow" ? Links::kFollow : Links::kInside,
               options.lora_allowed_roots);
}

TokenizerDirectory checkTokenizer(const fs::path& dir, int64_t vocabulary) {
  TokenizerDirectory text;
  text.codec = loadTextCodec(dir);
  text.defaults = readGenerationDefaults(dir, text.codec->eosTokenId());
  for (const int32_t id : text.defaults.end_ids) {
    if (id < vocabulary) continue;
    fail(ErrorCode::kInvalidArgument,
         "{}: end token {} is not in the engine's vocabulary of {}; is the tokenizer that of this model?", dir.string(),
         id, vocabulary);
  }
  return text;
}

void checkMemory(const ServeOptions& options, const WeightTable& table, const ModelConfig& config, BuildConfig build) {
  if (build.max_seq_len == 0) {
    build.max_seq_len = static_cast<int32_t>(std::min<int64_t>(config.max_position_embeddings, 1 << 28));
  }
  const auto weights = static_cast<int64_t>(engineBytes(table, config));
  leastMemory(config, build, weights, {}, adapterCacheConfig(options)).check(static_cast<int64_t>(availableMemory()));
}

uint64_t preparationBytes(const WeightTable& table, const ModelConfig& config) {
  return checkedAdd(checkpointBytes(table, config), engineBytes(table, config), "the engine");
}

void checkDiskSpace(const fs::path& dir, uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(dir, error);
  if (error || space.available >= bytes) return;
  fail(ErrorCode::kExhausted,
       "--cache_dir {}: preparing this model takes {:.1f} MiB there, and {:.1f} MiB are free; free space or choose "
       "another --cache_dir",
       dir.string(), mebibytes(bytes), mebibytes(space.available));
}

}  // namespace chorus::server
