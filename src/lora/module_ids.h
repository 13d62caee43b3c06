// LoRA module ids and names, numbered like TensorRT-LLM's. Ids 5 and 7 follow its converter where its documentation
// differs: 5 is the activated projection (gate_proj, mlp.fc), 7 the other one (up_proj, mlp.gate).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus {

inline constexpr std::array<std::string_view, 22> kLoraModuleNames = {"attn_qkv",
                                                                      "attn_q",
                                                                      "attn_k",
                                                                      "attn_v",
                                                                      "attn_dense",
                                                                      "mlp_h_to_4h",
                                                                      "mlp_4h_to_h",
                                                                      "mlp_gate",
                                                                      "cross_attn_qkv",
                                                                      "cross_attn_q",
                                                                      "cross_attn_k",
                                                                      "cross_attn_v",
                                                                      "cross_attn_dense",
                                                                      "moe_h_to_4h",
                                                                      "moe_4h_to_h",
                                                                      "moe_gate",
                                                                      "moe_router",
                                                                      "mlp_router",
                                                                      "mlp_gate_up",
                                                                      "shared_expert_h_to_4h",
                                                                      "shared_expert_4h_to_h",
                                                                      "shared_expert_gate"};

enum LoraModuleId : int32_t {
  kAttnQkv = 0,
  kAttnQ = 1,
  kAttnK = 2,
  kAttnV = 3,
  kAttnDense = 4,
  kMlpHTo4H = 5,
  kMlp4HToH = 6,
  kMlpGate = 7,
  kMoeHTo4H = 13,   // of every expert: w1, the activated projection
  kMoe4HToH = 14,   // w2
  kMoeGate = 15,    // w3
  kMoeRouter = 16,  // chooses the experts
  kMlpRouter = 17,  // the gate of the expert that takes every row
  kMlpGateUp = 18,
  kSharedExpertHTo4H = 19,
  kSharedExpert4HToH = 20,
  kSharedExpertGate = 21,
  // TensorRT-LLM has no ids for these modules. The values are far above its ids, which may grow.
  kTokenEmbedding = 1000,
  kOutputHead = 1001,
};

// nullopt outside 0 to 21.
inline std::optional<std::string_view> loraModuleName(int64_t id) {
  if (id < 0 || id >= static_cast<int64_t>(kLoraModuleNames.size())) return std::nullopt;
  return kLoraModuleNames[static_cast<size_t>(id)];
}

// nullopt for an unknown name.
inline std::optional<int32_t> loraModuleId(std::string_view name) {
  for (size_t id = 0; id < kLoraModuleNames.size(); ++id) {
    if (kLoraModuleNames[id] == name) return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

}  // namespace chorus
