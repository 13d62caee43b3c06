#include "engine/session.h"

#include <cmath>
#include <functional>

#include "base/error.h"
#include "engine/engine_layout.h"
#include "engine/rank_weights.h"
#include "engine/rope_table.h"
#include "models/decoder.h"

namespace chorus {
namespace {

// Sizes of one tensor-parallel rank. added_tokens: maximum number of tokens that an adapter adds.
DecoderShape rankShape(const ModelConfig& config, int64_t added_tokens = 0) {
  const int32_t tp = config.mapping.tp_size;
  return {.vocab_size = config.vocab_size,
          .head_rows = vocabularyShare(config),
          .added_tokens = added_tokens,
          .hidden_size = config.hidden_size,
          .num_heads = config.num_attention_heads / tp,
          .num_kv_heads = std::max(1, config.num_key_value_heads / tp),
          .head_size = config.head_size,
          .intermediate_size = config.intermediate_size / tp,
          .norm_epsilon = static_cast<float>(config.norm_epsilon),
          .attention_scale =
              1.0f / (static_cast<float>(config.q_scaling) * std::sqrt(static_cast<float>(config.head_size)))};
}

DType kvDType(const ModelConfig& config) { return config.dtype; }

KvLayer kvLayer(const ModelConfig& config, int32_t tokens_per_block) {
  const DecoderShape shape = rankShape(config);
  return {.dtype = kvDType(config),
          .num_kv_heads = shape.num_kv_heads,
          .head_size = static_cast<int32_t>(shape.head_size),
          .tokens_per_block = tokens_per_block};
}

// Whether this rank copies a step's logits to host memory. Only the first rank of the last stage does.
bool holdsLogits(const ModelConfig& config, int32_t rank) {
  return config.mapping.ppRank(rank) + 1 == config.mapping.pp_size && config.mapping.tpRank(rank) == 0;
}

void roundTo(DType dtype, std::span<float> values) {
  if (dtype == DType::kFloat16) {
    for (float& value : values) value = toFloat(toF16(value));
  } else if (dtype == DType::kBFloat16) {
    for (float& value : values) value = toFloat(toBf16(value));
  }
}

// Replaces options that are 0 by the engine's limits. Without --lora_plugin, max_added_tokens becomes 0.
SessionOptions resolved(const BuildConfig& build, SessionOptions options) {
  if (options.max_batch_size == 0) options.max_batch_size = build.max_batch_size;
  if (options.max_num_tokens == 0) options.max_num_tokens = build.max_num_tokens;
  if (options.tokens_per_block == 0) options.tokens_per_block = build.tokens_per_block;
  if (!build.lora_plugin) options.max_added_tokens = 0;
  return options;
}
}  // namespace

struct Session::State {
  State(const Engine& engine, Backend& backend, const SessionOptions& options, const RankLinks& links)
      : shape(rankShape(engine.config(), options.max_added_tokens)),
        activations(backend, shape, links, options.max_num_tokens, options.max_batch_size),
        context(backend.createContext()) {
    const ModelConfig& config = engine.config();
    const LayerRange layers = engine.layers();
    const auto upload = [&](const std::vector<float>& host) {
      DeviceBuffer buffer = backend.allocate(host.size() * sizeof(float));
      backend.upload(buffer.data(), host.data(), buffer.size(), stream);
      return buffer;
    };
    const HostRopeTable rope = makeRopeTable(config, engine.buildConfig().max_seq_len);
    rope_cos = upload(rope.cos);
    rope_sin = upload(rope.sin);
    backend.synchronize(stream);

    KvLayer layer = kvLayer(config, options.tokens_per_block);
    layer.block_stride = ::chorus::kvBlockBytes(layer);
    const int64_t layer_bytes = layer.block_stride * options.kv_blocks;
    kv_pool = backend.allocate(static_cast<size_t>(layer_bytes * layers.count()));
    for (int32_t i = 0; i < layers.count(); ++i) {
      layer.base = kv_pool.as<std::byte>() + layer_bytes * i;
      kv.push_back(layer);
    }
    host_weights = loadWeights(engine);
    std::vector<LayerSpec> specs = engine.architecture().modelSpec(config).layers;
    decoder = std::make_unique<Decoder>(
        std::vector<LayerSpec>(specs.begin() + layers.begin, specs.begin() + layers.end), shape,
        importWeights(host_weights, engine, backend),
        RopeTable{rope_cos.as<float>(), rope_sin.as<float>(), static_cast<int32_t>(config.rotary_embedding_dim),
                  config.position_embedding_type == PositionEmbedding::kRopeGptj},
        links);
    if (holdsLogits(config, engine.rank())) {
      host_logits.resize(static_cast<size_t>(options.max_batch_size * (config.vocab_size + options.max_added_tokens)));
    }
  }

  DecoderShape shape;
  Stream stream;
  DecoderActivations activations;
  std::unique_ptr<StepContext> context;
  DeviceBuffer rope_cos, rope_sin, kv_pool;
  std::vector<KvLayer> kv;
  ModelWeights host_weights;
  std::unique_ptr<Decoder> decoder;
  AdapterGroups adapters;
  std::vector<float> host_logits;     // [max_batch_size, vocab + max_added_tokens]
  std::vector<float> context_logits;  // of a step whose logits do not fit in host_logits
};

Session::Session(std::shared_ptr<const Engine> engine, std::shared_ptr<Backend> backend, const SessionOptions& options,
                 const RankLinks& links)
    : engine_(std::move(engine)),
      table_(engine_->architecture().weightTable(engine_->config())),
      backend_(std::move(backend)),
      adapter_memory_(std::make_shared<AdapterMemory>(*backend_)),
      options_(resolved(engine_->buildConfig(), options)) {
  if (options_.kv_blocks <= 0) fail(ErrorCode::kInvalidArgument, "the KV cache needs at least one block");
  state_ = std::make_unique<State>(*engine_, *backend_, options_, links);
}

Session::~Session() = default;

int64_t Session::kvBlockBytes(const ModelConfig& config, int32_t tokens_per_block) {
  return ::chorus::kvBlockBytes(kvLayer(config, tokens_per_block)) * config.num_hidden_layers * config.mapping.tp_size;
}

SessionMemory Session::memoryNeeds(const Engine& engine, const SessionOptions& options) {
  return memoryNeeds(engine.config(), engine.buildConfig(), engine.rank(), static_cast<int64_t>(engine.weightBytes()),
                     options);
}

SessionMemory Session::memoryNeeds(const ModelConfig& config, const BuildConfig& build, int32_t rank,
                                   int64_t weight_bytes, const SessionOptions& given) {
  const SessionOptions options = resolved(build, given);
  const int32_t stage = config.mapping.ppRank(rank);
  const bool last_stage = stage + 1 == config.mapping.pp_size;
  const int64_t layers = stageLayers(config.num_hidden_layers, config.mapping, stage).count();
  SessionMemory memory;
  memory.weights = weight_bytes;
  memory.kv_cache = ::chorus::kvBlockBytes(kvLayer(config, options.tokens_per_block)) * layers * options.kv_blocks;
  constexpr int64_t kFloat = sizeof(float);
  memory.activations = DecoderActivations::bytes(rankShape(config, options.max_added_tokens), config.mapping.tp_size,
                                                 last_stage, options.max_num_tokens, options.max_batch_size);
  memory.activations += 2 * build.max_seq_len * (config.rotary_embedding_dim / 2) * kFloat;
  if (holdsLogits(config, rank)) {
    memory.host = options.max_batch_size * (config.vocab_size + options.max_added_tokens) * kFloat;
  }
  return memory;
}

const ModelWeights& Session::baseWeights() const { return state_->host_weights; }

std::span<const float> Session::run(const StepInput& input) {
  State& s = *state_;
  backend_->prepare({.tokens = input.tokens, .sequences = input.sequences, .logits_rows = input.logits_rows},
                    *s.context);
  const ModelConfig& config = engine_->config();
  const bool keeps = holdsLogits(config, engine_->rank());
  const auto count = keeps ? input.logits_rows.size() * static_cast<size_t>(logitsWidth(input, config.vocab_size)) : 0;
  // If requests ask for so many rows of context logits that host_logits is too small, the step allocates memory for
  // them; it is freed here, at the next step.
  std::vector<float>().swap(s.context_logits);
  if (count > s.host_logits.size()) s.context_logits.resize(count);
  const std::span<float> host = count > s.host_logits.size() ? s.context_logits : std::span(s.host_logits).first(count);
  const auto sink = [&](int64_t first, const ConstMatrix& logits) {
    if (!keeps) return;
    const auto to =
        host.subspan(static_cast<size_t>(first * logits.cols), static_cast<size_t>(logits.rows * logits.cols));
    backend_->download(to.data(), logits.data, to.size() * sizeof(float), s.stream);
    backend_->synchronize(s.stream);
    roundTo(config.logits_dtype, to);
  };
  // Passed by reference, because a std::function that holds the lambda itself would allocate memory.
  s.decoder->run(input, s.kv, s.activations, s.adapters, *backend_, *s.context, s.stream, std::ref(sink));
  return host;
}

}  // namespace chorus
