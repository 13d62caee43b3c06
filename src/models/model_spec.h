// The structure of a network as plain structs. The decoder builds and checks everything from it; weights come from the
// weight table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/config.h"

namespace chorus {

enum class NormKind { kRms, kLayerNorm };
struct NormSpec {
  NormKind kind = NormKind::kRms;
  bool bias = false;  // LayerNorm only
  float epsilon = 1e-5f;
};

enum class RopeKind { kNone, kNeox, kGptj };  // rotates halves of a head, or adjacent pairs
// Layers with equal specs share one table of angles.
struct RopeSpec {
  RopeKind kind = RopeKind::kNone;
  int64_t dims = 0;  // even; the first dims dimensions of a head are rotated
  double base = 10000.0;
  RopeScaling scaling;

  bool operator==(const RopeSpec&) const = default;
};

struct Heads {
  int32_t queries = 0;
  int32_t kv = 0;  // divides queries
  int64_t size = 0;

  int64_t width() const { return queries * size; }
  int64_t keyWidth() const { return kv * size; }
  int64_t qkvWidth() const { return (queries + 2 * int64_t{kv}) * size; }
};

// RMS norms of queries and keys before RoPE: slots kQuery and kKey.
enum class QkNorm {
  kNone,
  kPerHead,   // of each head, [head size]
  kWholeRow,  // of all query heads of a token together, [query heads * head size], and of all its key heads
};
// Multiplies the queries at position p by 1 + beta * log(1 + floor(p / length)), after RoPE.
struct QueryScaling {
  double beta = 0;  // 0: queries are not multiplied
  double length = 0;

  bool operator==(const QueryScaling&) const = default;
};
// Slopes of a run of the model's query heads: scale * alibiSlopes(heads)[first, first + count). Layers with equal specs
// share one list of slopes.
struct AlibiSpec {
  int32_t heads = 0;  // of all ranks; 0: the scores have no slopes
  int32_t first = 0;
  int32_t count = 0;
  float scale = 1.0f;

  bool operator==(const AlibiSpec&) const = default;
};
struct AttentionSpec {
  Heads heads;
  // Set by rankSpec(): the heads of all tensor-parallel ranks together, and which of them are this rank's first ones.
  Heads all_heads;
  int32_t first_query = 0;
  int32_t first_kv = 0;
  RopeSpec rope;
  QueryScaling query_scaling;
  // score = capped(scale * q . k) + slope of the query head * (position of the key - position of the query), as in
  // kernels/attention/attention.h
  float scale = 1.0f;
  float softcap = 0;   // 0: none
  AlibiSpec alibi;     // of heads.queries heads, if any
  int64_t window = 0;  // positions that a query attends to, with its own; 0: all
  QkNorm qk_norm = QkNorm::kNone;
};

enum class MlpKind {
  kPlain,    // activation(fc)
  kGated,    // activation(fc) * gate; kFc holds the rows of fc, then those of gate
  kExperts,  // a mixture of gated MLPs: each row goes to the experts that kRouter chooses for it (blocks/moe.h)
};
inline constexpr std::string_view kSquaredRelu = "squared-relu";  // TensorRT-LLM's name; transformers' is relu2
enum class Activation { kSilu, kGeluTanh, kGelu, kRelu, kReluSquared };
struct MlpSpec {
  MlpKind kind = MlpKind::kGated;
  Activation activation = Activation::kSilu;
  int64_t intermediate_size = 0;  // of each expert if there are experts

  // kExperts only:
  int32_t experts = 0;
  int32_t top_k = 0;         // experts of a row
  bool normalised = true;    // the weights of a row's experts sum to 1; otherwise they are shares of all experts
  int64_t shared_size = 0;   // intermediate size of the expert that takes every row; 0: there is none
  bool shared_gate = false;  // multiplies the shared expert's output by sigmoid(kSharedGate)
};

// The ways in which a layer adds its blocks (attention and the MLP) to the residual x, and the norms of each:
//   kPre             x + block(norm(x))          Llama, GPT-2    kAttentionIn, kMlpIn
//   kSandwich        x + norm(block(norm(x)))    Gemma 2, GLM-4  kAttentionIn, kAttentionOut, kMlpIn, kMlpOut
//   kPost            x + norm(block(x))          OLMo 2          kAttentionOut, kMlpOut
//   kNormedSum       norm(x + block(x))          OPT-350m        kAttentionOut, kMlpOut
//   kParallel        x + attention(norm(x)) + mlp(other_norm(x))  GPT-NeoX, Falcon-40b   kAttentionIn, kMlpIn
//   kParallelShared  x + attention(norm(x)) + mlp(norm(x))        Falcon-7b              kAttentionIn
enum class ResidualForm { kPre, kSandwich, kPost, kNormedSum, kParallel, kParallelShared };
inline bool isParallel(ResidualForm form) {
  return form == ResidualForm::kParallel || form == ResidualForm::kParallelShared;
}

struct LayerSpec {
  AttentionSpec attention;
  MlpSpec mlp;
  ResidualForm residual = ResidualForm::kPre;
  float residual_scale = 1.0f;  // of every block's output
};

struct EmbeddingSpec {
  // Length of the rows of the token table and number of inputs of the output head. If it differs from the hidden size,
  // the model has the linears kProjectIn [hidden, width] and kProjectOut [width, hidden].
  int64_t width = 0;
  float scale = 1.0f;      // of the rows of tokens
  bool positions = false;  // adds row p of the table kPositions [positions, hidden] to the token at position p
  bool norm = false;       // kEmbedding, before the first layer
};

struct HeadSpec {
  bool norm = true;   // kFinal, before the output head
  bool bias = false;  // x = W h + bias
  // logits = capped(scale * x), where capped(x) = softcap * tanh(x / softcap)
  float scale = 1.0f;
  float softcap = 0;  // 0: capped(x) = x
};

struct ModelSpec {
  int64_t hidden_size = 0;
  EmbeddingSpec embedding;
  NormSpec norm;  // of every norm except qk_norm, which is an RMS norm with the same epsilon
  std::vector<LayerSpec> layers;
  HeadSpec head;
};

// The activation for a config's hidden_act, in Hugging Face's names: "gelu" is exact; "gelu_pytorch_tanh", "gelu_new"
// and "gelu_fast" are its approximation by tanh. Throws Error(kUnsupported) for a name that no kernel computes.
Activation activationNamed(std::string_view hidden_act);
// All names that activationNamed() accepts, for Architecture::fields.
std::vector<Json> activationNames();

// ALiBi's slope of each of `heads` query heads: powers of 2^(-8 / p), where p is the greatest power of two that is at
// most `heads`; the heads from p on have the odd powers of its square root.
std::vector<float> alibiSlopes(int32_t heads);
// The slopes of a spec, [count].
std::vector<float> alibiSlopes(const AlibiSpec& spec);

// The layer that the fields of most configs describe: kPre, a gated MLP, scores divided by q_scaling * sqrt(head size)
// or, if there is a query_pre_attn_scalar, by q_scaling * sqrt(query_pre_attn_scalar), RoPE or ALiBi as
// position_embedding_type says, and a soft cap of scores if attn_logit_softcapping gives one. An architecture changes
// what differs.
LayerSpec layerSpec(const ModelConfig& config);
// A model of num_hidden_layers layers that are equal except for their windows (models/sliding_window.h), with RMS norms
// of norm_epsilon, and a soft cap of logits if final_logit_softcapping gives one. If there is a rope_local_base_freq,
// layers with a window have RoPE of this base, without scaling.
ModelSpec modelSpec(const ModelConfig& config, const LayerSpec& layer);

// Narrows the windows of a whole model: that of layer i is at most windows[i % windows.size()] positions, each > 0.
// Nothing changes if windows is empty. Throws Error(kInvalidArgument) if there are more windows than layers.
void limitWindows(std::span<const int32_t> windows, ModelSpec& spec);

// The spec of one rank: the layers of its pipeline stage, with its share of the heads and of the MLP. Fewer KV heads
// than ranks are repeated.
ModelSpec rankSpec(ModelSpec spec, const Mapping& mapping, int32_t rank);

}  // namespace chorus
