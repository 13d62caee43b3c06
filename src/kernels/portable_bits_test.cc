// A small layer has one hash with every instruction set that isPortable(), on x86-64 and Arm.
#include "base/sha256.h"
#include "kernels/linear/linear.h"
#include "kernels/testing/linear_cases.h"
#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using linear_test::makeWeight;
using linear_test::Weight;

// No size of the layer is a multiple of 16, and the second sequence is longer than a run of the attention.
constexpr int32_t kHeads = 6, kKvHeads = 2, kHeadSize = 20, kPositions = 70, kTokensPerBlock = 32;
constexpr int64_t kHidden = 100, kInner = 52, kQueries = int64_t{kHeads} * kHeadSize;
constexpr int64_t kQkv = kQueries + int64_t{2} * kKvHeads * kHeadSize;
constexpr ActivationKind kKinds[] = {ActivationKind::kSilu, ActivationKind::kGelu,        ActivationKind::kGeluTanh,
                                     ActivationKind::kRelu, ActivationKind::kReluSquared, ActivationKind::kTanh};

// The layer's weights, adapters and inputs, the same on every instruction set.
struct Layer {
  Weight qkv, out, up, down, a, b;
  std::vector<float> x, norm, bias, cos, sin, slopes;
  DType cache;

  explicit Layer(const WeightFormat& format) : cache(isQuantised(format.dtype) ? format.scale_dtype : format.dtype) {
    Values values;
    qkv = makeWeight(values, format, kQkv, kHidden);
    out = makeWeight(values, format, kHidden, kQueries);
    up = makeWeight(values, format, 2 * kInner, kHidden);
    down = makeWeight(values, format, kHidden, kInner);
    a = makeWeight(values, cache, 5, kHidden);
    b = makeWeight(values, cache, kHidden, 5);
    x = values.reals(rows() * kHidden);
    norm = values.reals(kHidden, 0.5f, 1.5f);
    bias = values.reals(kHidden);
    cos = values.reals(kPositions * kHeadSize / 2);
    sin = values.reals(kPositions * kHeadSize / 2);
    slopes = values.reals(kHeads, 0.0f, 0.1f);
  }
  static int64_t rows() { return 3 + kPositions; }
};

std::string hashOf(const Layer& layer, Isa isa) {
  const auto backend = createBackend({.name = "cpu", .threads = 2, .isa = isa});
  const std::vector<int32_t> first_blocks = {3}, second_blocks = {1, 0, 2}, tokens(static_cast<size_t>(Layer::rows()));
  const SequenceSpan sequences[] = {{0, 3, 0, first_blocks}, {3, kPositions, 0, second_blocks}};
  const RowRange some = {1, 40};
  const LoraTerm term = {.a = layer.a.view, .b = layer.b.view, .scale = 0.7f};
  const RowGroup groups[] = {{{&some, 1}, {&term, 1}, {}}};
  const auto context = kernel_test::prepared(*backend, {tokens, sequences, {}, {.linear = groups}});
  KvLayer kv{nullptr, 0, layer.cache, kKvHeads, kHeadSize, kTokensPerBlock};
  kv.block_stride = kvBlockBytes(kv);
  std::vector<std::byte> cache(static_cast<size_t>(4 * kv.block_stride));
  kv.base = cache.data();

  const auto matrix = [](std::vector<float>& values) {
    return kernel_test::view(values, Layer::rows(), std::ssize(values) / Layer::rows());
  };
  const auto made = [](int64_t cols) { return std::vector<float>(static_cast<size_t>(Layer::rows() * cols)); };
  Sha256 hash;
  const auto count = [&](const std::vector<float>& values) { hash.update(std::as_bytes(std::span(values))); };
  std::vector<float> residual = layer.x, h = made(kHidden), qkv = made(kQkv), attended = made(kQueries),
                     delta = made(kHidden), up = made(2 * kInner), inner = made(kInner), squares = made(1);
  backend->rmsNorm({.residual = matrix(residual), .weight = layer.norm.data(), .y = matrix(h)}, *context, {});
  backend->rowSquares({.x = matrix(h), .squares = squares.data()}, *context, {});
  backend->linear({.x = matrix(h), .weight = layer.qkv.view, .y = matrix(qkv)}, *context, {});
  backend->kvWrite({.qkv = matrix(qkv),
                    .num_heads = kHeads,
                    .norms = {.query = layer.norm.data(), .key = layer.norm.data(), .epsilon = 1e-5f},
                    .rope = {layer.cos.data(), layer.sin.data(), kHeadSize},
                    .kv = kv},
                   *context, {});
  count(squares);
  count(qkv);
  for (const AttentionScore& score : {AttentionScore{0.2f}, AttentionScore{0.2f, 3.0f, layer.slopes.data()}}) {
    const ConstMatrix q = {qkv.data(), Layer::rows(), kQueries, kQkv};
    backend->attention({.q = q, .num_heads = kHeads, .score = score, .kv = kv, .out = matrix(attended)}, *context, {});
    count(attended);
  }
  backend->linear({.x = matrix(attended), .weight = layer.out.view, .y = matrix(delta)}, *context, {});
  backend->layerNorm({.residual = matrix(residual),
                      .delta = matrix(delta),
                      .weight = layer.norm.data(),
                      .norm_bias = layer.bias.data(),
                      .y = matrix(h)},
                     *context, {});
  backend->linear({.x = matrix(h), .weight = layer.up.view, .y = matrix(up), .groups = kernel_test::allOf(groups)},
                  *context, {});
  for (const ActivationKind kind : kKinds) {
    backend->gatedActivation({.fc_gate = matrix(up), .kind = kind, .out = matrix(inner)}, *context, {});
    backend->linear({.x = matrix(inner), .weight = layer.down.view, .y = matrix(delta)}, *context, {});
    count(delta);
  }
  return hash.hex();
}

struct Case {
  const char* name;
  WeightFormat format;
  const char* hash;
};
const Case kCases[] = {
    {"float32", DType::kFloat32, "9bd4e0dfee9a28ff53bdc080a47f4e9a2804162c80a58eb203e6c9e549b27dce"},
    {"float16", DType::kFloat16, "e723163a3353403c13ea9e00a768dc9d6a0f209fd9fb2d32ede8ba9fdad80428"},
    {"bfloat16", DType::kBFloat16, "f964b419aacd2c9e5d06164f7424ae081616592bc35d0162d04f29626ef8bc51"},
    {"int8_of_float32",
     {DType::kInt8, 0, DType::kFloat32},
     "df0c31cccdb69a948611439d16ceab4e7c2df2fa802be89e592198c70fd540dc"},
    {"int8", {DType::kInt8, 0, DType::kBFloat16}, "e7e24d40df94131c8b117c75b7950a76c6bc42ebf73f8fd6bae40c9a3991d265"},
    {"int8_with_inputs_of_8_bits",
     {DType::kInt8, 0, DType::kBFloat16, 8},
     "53183e9f9b1b207d8d3ff148f43858f1a01832292c76d276232d1a3589733b74"},
    {"int4", {DType::kInt4, 32, DType::kFloat16}, "35f42b7e1bc86ef1e1b9ac0bb268e4dcdf0adea87e0821a9154a5c8746249b0a"},
    {"int4_with_inputs_of_8_bits",
     {DType::kInt4, 0, DType::kBFloat16, 8},
     "761de15912fb6eecdd7e9bc2323925d271fdd6d0b7641e951647c3bec38e9c96"},
};

class PortableBitsTest : public testing::TestWithParam<Case> {};

// If an order of operations changes on purpose, take the new hash from the failure on one machine, and confirm it on
// the other architecture (scripts/neon.sh).
TEST_P(PortableBitsTest, ALayerHasOneHash) {
  const auto& [name, format, hash] = GetParam();
  const Layer layer(format);
  int sets = 0;
  for (const Isa isa : availableIsas()) {
    if (!isPortable(isa, layer.cache)) continue;
    EXPECT_EQ(hashOf(layer, isa), hash) << isaName(isa);
    ++sets;
  }
  EXPECT_EQ(sets > 0, availableIsas().size() > 1);
}

INSTANTIATE_TEST_SUITE_P(Formats, PortableBitsTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace chorus
