// The list of all ops. The functions of the backends and the entries of the registry are generated from it; through the
// registry, so are the tests, benchmark cases and goldens that an op must have.
#pragma once

#include <array>
#include <string_view>

namespace chorus {

// X(Name, function, "name") defines Backend::function(const NameArgs&, ...) and Op::kName; "name" is the op's name in
// output for people.
#define CHORUS_OPS(X)                                           \
  X(Embedding, embedding, "embedding")                          \
  X(PositionEmbedding, positionEmbedding, "position_embedding") \
  X(Scale, scale, "scale")                                      \
  X(GatherRows, gatherRows, "gather_rows")                      \
  X(RmsNorm, rmsNorm, "rms_norm")                               \
  X(LayerNorm, layerNorm, "layer_norm")                         \
  X(Linear, linear, "linear")                                   \
  X(RowSquares, rowSquares, "row_squares")                      \
  X(KvWrite, kvWrite, "kv_write")                               \
  X(Attention, attention, "attention")                          \
  X(Activation, activation, "activation")                       \
  X(GatedActivation, gatedActivation, "gated_activation")       \
  X(Moe, moe, "moe")

enum class Op {
#define CHORUS_OP(Name, function, name) k##Name,
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP
};

inline constexpr std::array kOps = {
#define CHORUS_OP(Name, function, name) Op::k##Name,
    CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP
};

inline std::string_view opName(Op op) {
  static constexpr std::string_view kNames[] = {
#define CHORUS_OP(Name, function, name) name,
      CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP
  };
  return kNames[static_cast<size_t>(op)];
}

}  // namespace chorus
