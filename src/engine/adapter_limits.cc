#include "engine/adapter_limits.h"

#include <algorithm>

#include "base/error.h"
#include "lora/module_ids.h"

namespace chorus {

void checkServable(const Adapter& adapter, const BuildConfig& build) {
  if (!build.lora_plugin) {
    fail(ErrorCode::kUnsupported, "adapter '{}': the engine was built without --lora_plugin", adapter.name);
  }
  if (adapter.uses_dora && !build.dora_plugin) {
    fail(ErrorCode::kUnsupported, "adapter '{}' uses DoRA: the engine was built without --dora_plugin", adapter.name);
  }
  const auto& targets = build.lora_target_modules;
  if (targets.empty()) return;
  const auto isTarget = [&](std::string_view name) {
    return std::find(targets.begin(), targets.end(), name) != targets.end();
  };
  for (const AdapterModule& module : adapter.modules) {
    const auto name = loraModuleName(module.module_id);
    if (!name || isTarget(*name)) continue;
    const bool half = module.module_id == kMlpHTo4H || module.module_id == kMlpGate;
    if (half && isTarget(*loraModuleName(kMlpGateUp))) continue;
    fail(ErrorCode::kUnsupported, "adapter '{}': lora module {} not enabled for this model (--lora_target_modules)",
         adapter.name, module.module_name);
  }
}

int64_t adapterElements(const Adapter& adapter) {
  int64_t elements = std::ssize(adapter.embedding_tokens.rows) + std::ssize(adapter.head_tokens.rows);
  for (const AdapterModule& module : adapter.modules) elements += module.rank * (module.in + module.out);
  for (const AdapterWeight& weight : adapter.weights) elements += weight.rows * weight.cols;
  return elements;
}

}  // namespace chorus
