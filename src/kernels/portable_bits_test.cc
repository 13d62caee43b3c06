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
    {"float32", DType::kFloat32, "37afae9ce72cdf2d16e26f13c4f85aacf98209fc8b405f5e32053fd9a706f142"},
    {"float16", DType::kFloat16, "615ae7e104901f861d30a3f8f94aee3983c18d767ed41252e137a5dbdde313eb"},
    {"bfloat16", DType::kBFloat16, "0769ab8531ff70c40c5ce7af36594bbf276f07200fc04f6b5bf398b8c42cfa7d"},
    {"int8_of_float32",
     {DType::kInt8, 0, DType::kFloat32},
     "46a67b4212e0102f3ed6b116816e254294163b25be712ac53feb00697ac4c47a"},
    {"int8", {DType::kInt8, 0, DType::kBFloat16}, "e8e8571aaa4796de438aecc60b4bf4a4f23e94b798f12fe6d77837039ddd4248"},
    {"int8_with_inputs_of_8_bits",
     {DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8},
     "eb7c12ad113155070f4c6227513762715c733b5d9d612b09bf8bb2b125629b86"},
    {"int8_with_a_scale_per_token",
     {DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8PerToken},
     "a24acc8680981c5f5ec7ff36bfcc523b524064811ccad6443fca24dd74aaa551"},
    {"int4", {DType::kInt4, 32, DType::kFloat16}, "219e98120bee0f47e55db0bf3fba3b8d1aa2192c70592d8cafb999437783438f"},
    {"int4_with_inputs_of_8_bits",
     {DType::kInt4, 0, DType::kBFloat16, InputFormat::kInt8},
     "d9dd09f9aa4ec765febe0e975e24121c9d84eb18692d7cf0ebd0248fa58cf89a"},
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
