#include "convert/lora_places.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "lora/module_ids.h"

namespace chorus {
namespace {

struct Leaf {
  std::string_view name;
  int32_t module_id;
};

// Ids of self-attention; those of cross-attention follow in the same order.
constexpr Leaf kAttention[] = {{"qkv_proj", kAttnQkv}, {"query_key_value", kAttnQkv},
                               {"c_attn", kAttnQkv},   {"W_pack", kAttnQkv},
                               {"q_proj", kAttnQ},     {"q", kAttnQ},
                               {"k_proj", kAttnK},     {"k", kAttnK},
                               {"v_proj", kAttnV},     {"v", kAttnV},
                               {"o_proj", kAttnDense}, {"out_proj", kAttnDense},
                               {"dense", kAttnDense},  {"c_proj", kAttnDense},
                               {"o", kAttnDense}};
constexpr int32_t kCrossAttention = 8;
constexpr std::string_view kSelfParents[] = {"self_attn", "attention", "attn", "self_attention", "SelfAttention"};
constexpr std::string_view kCrossParents[] = {"encoder_attn", "cross_attn", "cross_attention", "EncDecAttention"};

constexpr Leaf kMlp[] = {{"gate_proj", kMlpHTo4H},
                         {"c_fc", kMlpHTo4H},
                         {"dense_h_to_4h", kMlpHTo4H},
                         {"fc1", kMlpHTo4H},
                         {"fc_in", kMlpHTo4H},
                         {"wi", kMlpHTo4H},
                         {"wi_0", kMlpHTo4H},
                         {"down_proj", kMlp4HToH},
                         {"c_proj", kMlp4HToH},
                         {"dense_4h_to_h", kMlp4HToH},
                         {"fc2", kMlp4HToH},
                         {"fc_out", kMlp4HToH},
                         {"wo", kMlp4HToH},
                         {"up_proj", kMlpGate},
                         {"wi_1", kMlpGate},
                         {"gate_up_proj", kMlpGateUp},
                         {"gate", kMoeRouter},
                         {"shared_expert_gate", kMlpRouter}};
constexpr std::string_view kMlpParents[] = {"mlp", "DenseReluDense"};

constexpr Leaf kExpert[] = {{"w1", kMoeHTo4H},        {"gate_proj", kMoeHTo4H}, {"w2", kMoe4HToH},
                            {"down_proj", kMoe4HToH}, {"w3", kMoeGate},         {"up_proj", kMoeGate}};
constexpr Leaf kSharedExpert[] = {
    {"gate_proj", kSharedExpertHTo4H}, {"down_proj", kSharedExpert4HToH}, {"up_proj", kSharedExpertGate}};
constexpr std::string_view kMoeParents[] = {"block_sparse_moe", "mlp"};
// Names that precede a layer's number.
constexpr std::string_view kLayerLists[] = {"layers", "h", "block", "blocks"};

template <typename List>
bool contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

template <typename List>
std::optional<int32_t> idOf(const List& leaves, std::string_view name) {
  for (const Leaf& leaf : leaves) {
    if (leaf.name == name) return leaf.module_id;
  }
  return std::nullopt;
}

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = name.find('.', begin);
    parts.push_back(name.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::optional<int32_t> number(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// rest: components of the module's name after the layer's number.
std::optional<LoraPlace> placeInLayer(const std::vector<std::string_view>& rest) {
  const auto place = [](std::optional<int32_t> id) -> std::optional<LoraPlace> {
    if (!id) return std::nullopt;
    return LoraPlace{.module_id = *id};
  };
  // T5 numbers the parts of a layer: "layer.1.EncDecAttention.q".
  if (rest.size() == 4 && rest[0] == "layer" && number(rest[1])) return placeInLayer({rest[2], rest[3]});
  if (rest.size() == 4 && contains(kMoeParents, rest[0]) && rest[1] == "experts") {
    const auto expert = number(rest[2]);
    auto found = place(idOf(kExpert, rest[3]));
    if (!expert || !found) return std::nullopt;
    found->expert = *expert;
    return found;
  }
  if (rest.size() == 1 && (rest[0] == "fc1" || rest[0] == "fc2")) return place(idOf(kMlp, rest[0]));
  if (rest.size() == 3 && rest[0] == "mlp" && rest[1] == "shared_expert") return place(idOf(kSharedExpert, rest[2]));
  if (rest.size() != 2) return std::nullopt;
  if (contains(kSelfParents, rest[0])) return place(idOf(kAttention, rest[1]));
  if (contains(kCrossParents, rest[0])) {
    auto found = place(idOf(kAttention, rest[1]));
    if (found) found->module_id += kCrossAttention;
    return found;
  }
  if (contains(kMlpParents, rest[0])) return place(idOf(kMlp, rest[1]));
  if (rest[0] == "block_sparse_moe" && rest[1] == "gate") return place(kMoeRouter);
  return std::nullopt;
}
}  // namespace

std::optional<LoraPlace> loraPlaceOf(std::string_view module) {
  const std::vector<std::string_view> parts = split(module);
  for (size_t i = 0; i + 2 < parts.size(); ++i) {
    if (!contains(kLayerLists, parts[i])) continue;
    const auto layer = number(parts[i + 1]);
    if (!layer) continue;
    auto place = placeInLayer({parts.begin() + static_cast<std::ptrdiff_t>(i) + 2, parts.end()});
    if (place) place->layer = *layer;
    return place;
  }
  return std::nullopt;
}

}  // namespace chorus
