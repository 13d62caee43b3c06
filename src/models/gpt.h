// GPTForCausalLM: the decoder of Megatron and NeMo, by TensorRT-LLM's name. What varies between its models: learned or
// rotary positions (also on a part of each head), layer norms or RMS norms, a plain or a gated MLP, biases, groups of
// query heads.
#pragma once

#include <string>
#include <string_view>

#include "models/architecture.h"

namespace chorus {

Architecture gptArchitecture();

// Fields of its checkpoints.
inline constexpr const char* kGptBias = "bias";                // of all linears of the layers; absent: true
inline constexpr const char* kGptNormType = "layernorm_type";  // 0: layer norms with a bias; 1: RMS norms; absent: 0
// "nemo": the modules of adapters have the names that they have in Llama. Otherwise, in a model with the structure of
// GPT-2, those of GPT-2.
inline constexpr const char* kGptVariant = "gpt_variant";
// Names of `hidden_act` for gated MLPs: act(fc) * gate.
inline constexpr const char* kSwiglu = "swiglu";       // silu
inline constexpr const char* kGeglu = "geglu";         // gelu by tanh
inline constexpr const char* kGegluErf = "geglu_erf";  // exact gelu
inline constexpr const char* kReglu = "reglu";         // relu

}  // namespace chorus
