#include "engine/adapter_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/background_throttle.h"
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

// Whether all of `count` values are finite in the type `to`. They are finite in their own type.
bool fit(const std::byte* values, DType from, DType to, int64_t count, BackgroundThrottle* throttle) {
  const bool wider = to == DType::kFloat32 || (from == DType::kFloat16 && to == DType::kBFloat16);
  if (from == to || wider) return true;
  bool all = true;
  std::vector<std::byte> converted;
  inPieces(count, dtypeSize(from), throttle, [&](int64_t begin, int64_t of_piece) {
    converted.resize(static_cast<size_t>(of_piece) * dtypeSize(to));
    convertElements(values + static_cast<size_t>(begin) * dtypeSize(from), from, converted.data(), to,
                    static_cast<size_t>(of_piece));
    all = all && allFinite(converted, to);
  });
  return all;
}

std::string ofLayer(int32_t layer) { return layer < 0 ? "" : fmt::format(" of layer {}", layer); }
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

void checkValues(const Adapter& adapter, DType model_type, BackgroundThrottle* throttle) {
  if (adapter.only_shapes) return;
  const auto check = [&](const void* values, DType from, int64_t count, const std::string& what) {
    if (fit(static_cast<const std::byte*>(values), from, model_type, count, throttle)) return;
    fail(ErrorCode::kInvalidArgument, "adapter '{}': {} holds values beyond the range of {}, the model's type",
         adapter.name, what, dtypeName(model_type));
  };
  for (const AdapterModule& module : adapter.modules) {
    const std::string name = module.module_name + ofLayer(module.layer);
    check(module.a, module.dtype, module.rank * module.in, name);
    check(module.b, module.dtype, module.out * module.rank, name);
  }
  for (const AdapterWeight& weight : adapter.weights) {
    // Norms and biases stay in float32.
    if (weight.slot.kind == SlotKind::kNorm || weight.slot.isBias()) continue;
    check(weight.data, weight.dtype, weight.rows * weight.cols, "a whole weight" + ofLayer(weight.layer));
  }
  for (const AdapterTokens* tokens : {&adapter.embedding_tokens, &adapter.head_tokens}) {
    check(tokens->rows.data(), DType::kFloat32, std::ssize(tokens->rows), "a token's row");
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
