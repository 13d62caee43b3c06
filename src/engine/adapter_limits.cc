#include "engine/adapter_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "lora/adapter_builder.h"
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

void checkValues(const Adapter& adapter, const AdapterTypes& types, BackgroundThrottle* throttle) {
  if (adapter.only_shapes) return;
  const auto check = [&](const void* values, DType from, DType to, int64_t count, const auto& nameOf) {
    const std::span bytes(static_cast<const std::byte*>(values), static_cast<size_t>(count) * dtypeSize(from));
    if (allFiniteAs(bytes, from, to, throttle)) return;
    fail(ErrorCode::kInvalidArgument, "adapter '{}': {} holds values beyond the range of {}, the model's type",
         adapter.name, nameOf(), dtypeName(to));
  };
  for (const AdapterModule& module : adapter.modules) {
    // Integers have float32 scales. The token embedding's A and B keep the model's type.
    if (types.int8_terms && module.module_id != kTokenEmbedding) continue;
    const auto nameOf = [&] {
      const std::string name = expertName(module.module_name, module.expert);
      return module.layer < 0 ? name : fmt::format("{} of layer {}", name, module.layer);
    };
    check(module.a, module.dtype, types.model, module.rank * module.in, nameOf);
    check(module.b, module.dtype, types.model, module.out * module.rank, nameOf);
  }
  for (const AdapterWeight& weight : adapter.weights) {
    // Norms and biases stay in float32. A row of the table may have a type of its own, as a router has.
    if (weight.slot.kind == SlotKind::kNorm || weight.slot.isBias()) continue;
    const WeightRow* row = findRow(types.table, weight.slot);  // null: the head of a model that has none of its own
    const DType type = row != nullptr ? row->dtype.value_or(types.model) : types.model;
    check(weight.data, weight.dtype, type, weight.rows * weight.cols,
          [&] { return row != nullptr ? layerName(row->name, weight.layer) : std::string("the output head"); });
  }
  const auto checkRows = [&](const AdapterTokens& tokens, const char* name) {
    check(tokens.rows.data(), DType::kFloat32, types.model, std::ssize(tokens.rows), [&] { return name; });
  };
  checkRows(adapter.embedding_tokens, "a token's row of the embedding");
  checkRows(adapter.head_tokens, "a token's row of the output head");
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
