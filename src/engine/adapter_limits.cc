#include "engine/adapter_limits.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}
}  // namespace

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

bool mayBeCopyOfBase(const Adapter& adapter, const AdapterWeight& weight) {
  if (weight.slot == slotOf(TableId::kTokens)) return adapter.input_vocab_size == 0;
  return weight.slot == slotOf(LinearId::kHead) && adapter.vocab_size == 0;
}

std::vector<std::string> loraModules(const WeightTable& table) {
  std::set<int32_t> ids;
  for (const WeightRow& row : table) {
    for (const LoraTarget& target : row.lora_targets) ids.insert(target.module_id);
  }
  if (ids.contains(kMlpHTo4H) && ids.contains(kMlpGate)) ids.insert(kMlpGateUp);
  std::vector<std::string> names;
  for (const int32_t id : ids) {
    if (const auto name = loraModuleName(id)) names.emplace_back(*name);
  }
  return names;
}

void checkTargetModules(const BuildConfig& build, const WeightTable& table, std::string_view architecture) {
  const std::vector<std::string> has = loraModules(table);
  std::vector<std::string> unknown;
  for (const std::string& name : build.lora_target_modules) {
    if (std::find(has.begin(), has.end(), name) == has.end()) unknown.push_back(name);
  }
  if (unknown.empty()) return;
  fail(ErrorCode::kInvalidArgument, "--lora_target_modules {}: {} has no such module; it has {}", joined(unknown),
       architecture, joined(has));
}

int64_t adapterElements(const Adapter& adapter) {
  int64_t elements = adapter.embedding_tokens.elements() + adapter.head_tokens.elements();
  for (const AdapterModule& module : adapter.modules) elements += module.rank * (module.in + module.out);
  for (const AdapterWeight& weight : adapter.weights) elements += weight.rows * weight.cols;
  return elements;
}

}  // namespace chorus
