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

// No size of the layer is a multiple of 16, its last product has inputs of more than one run (kFixedRun), and the
// second sequence is longer than a run of the attention.
constexpr int32_t kHeads = 6, kKvHeads = 2, kHeadSize = 20, kPositions = 70, kTokensPerBlock = 32;
constexpr int64_t kHidden = 100, kInner = 152, kQueries = int64_t{kHeads} * kHeadSize;
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
    {"float32", DType::kFloat32, "c6f0f18ba9f159c3a1becef92b2e0abb8a432f437724330a0e9230b835a8853d"},
    {"float16", DType::kFloat16, "56e18904c94b4e7ddb77a40fee84974548ea9e8883e25671e79c37a91b2f7249"},
    {"bfloat16", DType::kBFloat16, "503f3f59d1bd5d32bb58b1de1b8cf78502d28031af9daeac762a50756328cf51"},
    {"int8_of_float32",
     {DType::kInt8, 0, DType::kFloat32},
     "99556ab517d0b4d091e28c58f791d261c447ae6178e3c6aaafb7aabe4c440128"},
    {"int8", {DType::kInt8, 0, DType::kBFloat16}, "235f36d75cca9c9f2a3cf17ced9c293b9792ab14d8fce52ecd3d19af7beb53a5"},
    {"int8_with_inputs_of_8_bits",
     {DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8},
     "99446dd069875ccedf3cc1075e8fcf3897c78c8a0ff8c35d94f92de187f8ae11"},
    {"int8_with_a_scale_per_token",
     {DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8PerToken},
     "6f5c57f32bfd75d153273ea3127d0fc3c21d66b7ce611a0a26f33450d4171040"},
    {"int4", {DType::kInt4, 32, DType::kFloat16}, "22c7440cebdc493a30362eb8799aa467b29328be1a9aadea7819e5b8384e28d9"},
    {"int4_with_inputs_of_8_bits",
     {DType::kInt4, 0, DType::kBFloat16, InputFormat::kInt8},
     "5862d98201ba96ac97eb3dbaa4cff8bb60dfdb5f11ca97f73b72d7f4882be356"},
};

class PortableBitsTest : public testing::TestWithParam<Case> {};

// If an order of operations changes on purpose, take the new hash from the failure on one machine, and confirm it on
// the other architecture (scripts/neon.sh).
TEST_P(PortableBitsTest, ALayerHasOneHash) {
  const auto& [name, format, hash] = GetParam();
  const Layer layer(format);
  for (const Isa isa : availableIsas()) {
    if (!isPortable(isa, layer.cache)) continue;
    EXPECT_EQ(hashOf(layer, isa), hash) << isaName(isa);
  }
  EXPECT_TRUE(isPortable(Isa::kScalar, layer.cache)) << "which every machine has";
}

INSTANTIATE_TEST_SUITE_P(Formats, PortableBitsTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace chorus
