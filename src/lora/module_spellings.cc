#include "lora/module_spellings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/format.h"
#include "lora/adapter_builder.h"
#include "lora/peft_keys.h"

namespace chorus {
namespace {

constexpr std::string_view kExpert = "{expert}";

// Each row has the names of one module in a layer. A fused linear is here only if all of these names have the same
// order of rows.
constexpr std::string_view kInLayer[][4] = {
    {"self_attn.q_proj", "attn.q_proj"},
    {"self_attn.k_proj", "attn.k_proj"},
    {"self_attn.v_proj", "attn.v_proj"},
    {"self_attn.o_proj", "attn.output_proj"},
    {"self_attn.qkv_proj", "self_attn.W_pack"},
    {"mlp.gate_proj", "mlp.w1"},
    {"mlp.down_proj", "mlp.w2"},
    {"mlp.up_proj", "mlp.w3"},
    {"mlp.gate", "block_sparse_moe.gate"},
    {"mlp.experts.{expert}.gate_proj", "mlp.experts.{expert}.w1", "block_sparse_moe.experts.{expert}.w1",
     "block_sparse_moe.experts.{expert}.gate_proj"},
    {"mlp.experts.{expert}.down_proj", "mlp.experts.{expert}.w2", "block_sparse_moe.experts.{expert}.w2",
     "block_sparse_moe.experts.{expert}.down_proj"},
    {"mlp.experts.{expert}.up_proj", "mlp.experts.{expert}.w3", "block_sparse_moe.experts.{expert}.w3",
     "block_sparse_moe.experts.{expert}.up_proj"},
};
constexpr std::string_view kOutside[][5] = {{"embed_tokens", "wte", "tok_embeddings", "embed_in", "word_embeddings"},
                                            {"lm_head", "output", "embed_out"}};

bool isIn(std::span<const std::string_view> spellings, std::string_view name) {
  return !name.empty() && std::ranges::find(spellings, name) != spellings.end();
}

// A module's name with "{expert}" for its expert's id, and the id.
struct ExpertModule {
  std::string pattern;
  std::optional<int64_t> expert;

  std::string withExpert(std::string_view spelling) const {
    return expert ? expertName(spelling, *expert) : std::string(spelling);
  }
};

ExpertModule expertModule(std::string_view name) {
  constexpr std::string_view kBefore = ".experts.";
  ExpertModule module{.pattern = std::string(name)};
  const size_t at = name.find(kBefore);
  if (at == std::string_view::npos) return module;
  const size_t begin = at + kBefore.size();
  int64_t expert = -1;
  const auto [end, error] = std::from_chars(name.data() + begin, name.data() + name.size(), expert);
  const auto length = static_cast<size_t>(end - name.data()) - begin;
  if (error != std::errc() || expert < 0 || std::to_string(expert) != name.substr(begin, length)) return module;
  module.pattern.replace(begin, length, kExpert);
  module.expert = expert;
  return module;
}

// Calls is(spelling) for each spelling of the module, and returns the first one for which it is true.
template <typename Is>
std::string firstSpelling(std::string_view pattern, Is&& is) {
  if (is(pattern)) return std::string(pattern);
  for (const auto& spellings : kInLayer) {
    if (!isIn(spellings, pattern)) continue;
    for (const std::string_view spelling : spellings) {
      if (!spelling.empty() && is(spelling)) return std::string(spelling);
    }
  }
  return {};
}
}  // namespace

std::string nameInTable(std::string_view name, const WeightTable& table, int32_t layer) {
  const ExpertModule module = expertModule(name);
  const std::string found = firstSpelling(module.pattern, [&](std::string_view spelling) {
    return !findModules(table, module.withExpert(spelling), layer).empty();
  });
  return found.empty() ? std::string(name) : module.withExpert(found);
}

std::string stackedModuleOf(std::string_view name, const WeightTable& table, int32_t layer) {
  constexpr std::string_view kStack = ".switch_mlp.";
  const size_t at = name.find(kStack);
  if (at == std::string_view::npos) return {};
  const std::string pattern =
      fmt::format("{}.experts.{}.{}", name.substr(0, at), kExpert, name.substr(at + kStack.size()));
  return firstSpelling(pattern, [&](std::string_view spelling) {
    return namesExpert(spelling) && !findModules(table, expertName(spelling, 0), layer).empty();
  });
}

bool isOutsideLayers(std::string_view name) {
  name = withoutModelNames(name);
  return std::ranges::any_of(kOutside, [&](const auto& spellings) { return isIn(spellings, name); });
}

bool areSpellings(std::string_view name, std::string_view other) {
  return std::ranges::any_of(kOutside,
                             [&](const auto& spellings) { return isIn(spellings, name) && isIn(spellings, other); });
}

}  // namespace chorus
