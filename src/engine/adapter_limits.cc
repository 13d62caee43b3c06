#include "engine/adapter_limits.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/tensor.h"
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
  for (const AdapterModule& module : adapter.modules) {
    const auto name = loraModuleName(module.module_id);
    if (name && std::find(targets.begin(), targets.end(), *name) != targets.end()) continue;
    fail(ErrorCode::kUnsupported, "adapter '{}': lora module {} not enabled for this model (--lora_target_modules)",
         adapter.name, module.module_name);
  }
}

int64_t adapterElements(const Adapter& adapter) {
  int64_t elements = 0;
  for (const AdapterModule& module : adapter.modules) elements += module.rank * (module.in + module.out);
  return elements;
}

int64_t packedAdapterBytes(const Adapter& rank_part, DType dtype) {
  int64_t total = 0;
  for (const AdapterModule& module : rank_part.modules) {
    total += packedPiece(packedBytes(dtype, module.rank, module.in)) +
             packedPiece(packedBytes(dtype, module.out, module.rank)) +
             packedPiece(static_cast<int64_t>(module.magnitude.size() * sizeof(float)));
  }
  return total;
}

}  // namespace chorus
