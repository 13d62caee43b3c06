#include "runtime/adapter_cache/adapter_sizing.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/shard.h"
#include "engine/adapter_packer.h"
#include "engine/adapter_values.h"
#include "kernels/tensor.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

constexpr int64_t kDefaultHostCacheSize = int64_t{1} << 30;
constexpr int64_t kLeastLoadMemory = int64_t{64} << 20;

bool allowed(const BuildConfig& build, const LoraTarget& target) {
  if (build.lora_target_modules.empty()) return true;
  const auto name = loraModuleName(target.module_id);
  const auto& names = build.lora_target_modules;
  return name && std::find(names.begin(), names.end(), *name) != names.end();
}

// Returns the largest set of LoRA targets of one linear weight that an adapter can have at the same time: either the
// targets of the weight's parts, or one target for the whole.
std::vector<LoraTarget> largestTargets(const BuildConfig& build, const WeightRow& row) {
  std::vector<LoraTarget> parts, whole;
  for (const LoraTarget& target : row.lora_targets) {
    if (!allowed(build, target)) continue;
    auto& kind = target.rows < row.shape[0] ? parts : whole;
    const bool seen = std::any_of(kind.begin(), kind.end(),
                                  [&](const LoraTarget& other) { return other.row_begin == target.row_begin; });
    if (!seen) kind.push_back(target);
  }
  const auto elements = [&](const std::vector<LoraTarget>& targets) {
    int64_t sum = 0;
    for (const LoraTarget& target : targets) sum += row.shape[1] + target.rows;
    return sum;
  };
  return elements(parts) > elements(whole) ? parts : whole;
}

void checkPositive(const std::optional<executor::SizeType32>& value, const char* field) {
  if (value && *value <= 0) fail(ErrorCode::kInvalidArgument, "{} {} must be positive", field, *value);
}

void check(const executor::PeftCacheConfig& config) {
  if (config.getNumPutWorkers() <= 0) fail(ErrorCode::kInvalidArgument, "numPutWorkers must be positive");
  if (config.getNumHostModuleLayer() < 0) fail(ErrorCode::kInvalidArgument, "numHostModuleLayer must not be negative");
  if (config.getNumDeviceModuleLayer() < 0)
    fail(ErrorCode::kInvalidArgument, "numDeviceModuleLayer must not be negative");
  checkPositive(config.getOptimalAdapterSize(), "optimalAdapterSize");
  checkPositive(config.getMaxAdapterSize(), "maxAdapterSize");
  checkPositive(config.getMaxHostAdapters(), "maxHostAdapters");
  checkPositive(config.getMaxDeviceAdapters(), "maxDeviceAdapters");
  if (config.getDeviceCachePercent() &&
      !(*config.getDeviceCachePercent() > 0 && *config.getDeviceCachePercent() <= 1)) {
    fail(ErrorCode::kInvalidArgument, "deviceCachePercent {} is not in (0, 1]", *config.getDeviceCachePercent());
  }
}

// The error names the measure that is too small: elements or else bytes.
void checkHoldsOne(const AdapterSize& capacity, const AdapterSize& largest, const char* level) {
  if (largest.within(capacity)) return;
  const bool by_elements = largest.elements > capacity.elements;
  fail(ErrorCode::kInvalidArgument, "Not enough space allocated to {} LoRA cache to hold 1 max sized LoRA {} < {}",
       level, by_elements ? capacity.elements : capacity.bytes, by_elements ? largest.elements : largest.bytes);
}

}  // namespace

AdapterSizing::AdapterSizing(const ModelConfig& config, const BuildConfig& build,
                             std::optional<WeightFormat> lora_format)
    : packer_(weightPacker(build.backend)),
      layers_(config.num_hidden_layers),
      format_(lora_format.value_or(config.dtype)),
      dora_(build.dora_plugin) {
  const int32_t tp_size = config.mapping.tp_size;
  for (const WeightRow& row : findArchitecture(config.architecture).weightTable(config)) {
    if (row.stage != Stage::kEveryLayer) continue;
    for (const LoraTarget& target : largestTargets(build, row)) {
      Module module{.in = row.shape[1], .out = target.rows};
      for (int32_t tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
        int64_t in = module.in, out = module.out;
        if (row.shard.axis == ShardRule::Axis::kColumns) in = sliceForRank(row, tp_size, tp_rank).cols;
        if (row.shard.axis == ShardRule::Axis::kRows) {
          out = 0;
          for (const RowRun& run : sliceRowsForRank(row, target.row_begin, target.rows, tp_size, tp_rank))
            out += run.rows;
        }
        if (out > 0) module.ranks.emplace_back(in, out);
      }
      const int64_t experts = std::max<int64_t>(row.experts, 1);
      module.copies = experts * (row.layers.empty() ? layers_ : std::ssize(row.layers));
      widest_ = std::max(widest_, experts * (module.in + module.out));
      modules_.push_back(std::move(module));
    }
  }
}

int64_t AdapterSizing::bytesOf(const Module& module, int32_t rank) const {
  int64_t bytes = 0;
  for (const auto& [in, out] : module.ranks) {
    bytes += packedPiece(packer_.bytes(format_, rank, in)) + packedPiece(packer_.bytes(format_, out, rank));
    if (dora_) bytes += packedPiece(out * static_cast<int64_t>(sizeof(float)));
  }
  return bytes;
}

AdapterSize AdapterSizing::fullAdapter(int32_t rank) const {
  AdapterSize size;
  for (const Module& module : modules_) {
    size += {module.copies * bytesOf(module, rank), module.copies * rank * (module.in + module.out)};
  }
  return size;
}

int64_t AdapterSizing::bytesFor(int64_t elements, int32_t from, int32_t to) const {
  double worst = 0;  // bytes per element
  for (int32_t rank = from; rank <= to; ++rank) {
    for (const Module& module : modules_) {
      worst = std::max(
          worst, static_cast<double>(bytesOf(module, rank)) / static_cast<double>(rank * (module.in + module.out)));
    }
  }
  const double bytes = worst * static_cast<double>(elements) + 1;
  return static_cast<int64_t>(std::min(bytes, static_cast<double>(AdapterSize::kUnlimited)));
}

std::optional<WeightFormat> loraFormat(const executor::PeftCacheConfig& config) {
  if (config.getLoraStorage() == executor::LoraStorage::kINT8) return int8LoraFormat();
  return std::nullopt;
}

AdapterCapacity adapterCapacity(const executor::PeftCacheConfig& config, const Engine& engine, int64_t free_bytes) {
  return adapterCapacity(config, engine.config(), engine.buildConfig(), free_bytes);
}

AdapterCapacity adapterCapacity(const executor::PeftCacheConfig& config, const ModelConfig& model,
                                const BuildConfig& build, int64_t free_bytes) {
  check(config);
  const AdapterSizing sizing(model, build, loraFormat(config));
  const int32_t max_rank = std::min(config.getMaxAdapterSize(), build.max_lora_rank);
  const int32_t optimal_rank = std::min(config.getOptimalAdapterSize(), max_rank);
  const AdapterSize largest = sizing.fullAdapter(max_rank);
  // The level's capacity in elements; 0: it is not sized in elements.
  const auto elementsOf = [&](std::optional<executor::SizeType32> adapters, executor::SizeType32 module_layers) {
    const int64_t number = adapters.value_or(module_layers);
    const int64_t each = adapters ? largest.elements : sizing.widestModuleElements();
    return number > AdapterSize::kUnlimited / std::max<int64_t>(each, 1) ? AdapterSize::kUnlimited : number * each;
  };

  AdapterCapacity capacity;
  const int64_t host = elementsOf(config.getMaxHostAdapters(), config.getNumHostModuleLayer());
  if (host > 0)
    capacity.host = {sizing.bytesFor(host, optimal_rank, max_rank), host};
  else if (config.getHostCacheSize())
    capacity.host = {static_cast<int64_t>(std::min<size_t>(*config.getHostCacheSize(), AdapterSize::kUnlimited)),
                     AdapterSize::kUnlimited};
  else
    capacity.host = {std::max(std::min(kDefaultHostCacheSize, free_bytes / 4), largest.bytes), AdapterSize::kUnlimited};

  capacity.device = capacity.host;
  const int64_t device = elementsOf(config.getMaxDeviceAdapters(), config.getNumDeviceModuleLayer());
  if (device > 0) {
    capacity.device.elements = std::min(device, capacity.host.elements);
  } else if (config.getDeviceCachePercent()) {
    const auto share = static_cast<double>(std::max<int64_t>(free_bytes, 0)) * *config.getDeviceCachePercent();
    capacity.device.bytes = std::min(static_cast<int64_t>(share), capacity.host.bytes);
  }
  capacity.pinned = {
      std::min(capacity.host.bytes / 2, std::max<int64_t>(capacity.host.bytes - largest.bytes, 0)),
      std::min(capacity.host.elements / 2, std::max<int64_t>(capacity.host.elements - largest.elements, 0))};
  const auto float32_bytes = static_cast<int64_t>(sizeof(float)) * largest.elements;
  capacity.loads =
      std::max({kLeastLoadMemory, 2 * float32_bytes, std::min(capacity.host.bytes, kDefaultHostCacheSize)});
  if (config.getLoadMemory()) {
    capacity.loads = static_cast<int64_t>(std::min<size_t>(*config.getLoadMemory(), AdapterSize::kUnlimited));
  }
  if (build.lora_plugin) {
    checkHoldsOne(capacity.host, largest, "host");
    checkHoldsOne(capacity.device, largest, "device");
  }
  return capacity;
}

}  // namespace chorus
