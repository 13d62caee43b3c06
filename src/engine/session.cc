#include "engine/session.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "engine/engine_layout.h"
#include "engine/position_tables.h"
#include "engine/rank_weights.h"
#include "models/architecture.h"
#include "models/decoder.h"

namespace chorus {
namespace {

ModelSpec rankSpecOf(const Architecture& architecture, const ModelConfig& config, int32_t rank,
                     std::span<const int32_t> attention_windows = {}) {
  ModelSpec spec = architecture.modelSpec(config);
  limitWindows(attention_windows, spec);
  return rankSpec(std::move(spec), config.mapping, rank);
}

// added_tokens: maximum number of tokens that an adapter adds.
VocabularyShape vocabularyOf(const ModelConfig& config, int64_t added_tokens) {
  return {.size = config.vocab_size, .head_rows = vocabularyShare(config), .added_tokens = added_tokens};
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
  options.scored_rows = std::max(options.scored_rows, options.tokens_per_block);
  return options;
}

// Number of logits that a step of these options has at most, unless contexts without chunks are scored. options:
// resolved.
int64_t mostLogits(const ModelConfig& config, const SessionOptions& options) {
  const int64_t rows = std::min(int64_t{options.max_batch_size} + options.scored_rows, int64_t{options.max_num_tokens});
  return std::max<int64_t>(rows, options.max_batch_size) * (config.vocab_size + options.max_added_tokens);
}

// options: resolved.
KvCacheOptions kvOptions(const BuildConfig& build, const SessionOptions& options) {
  return {options.tokens_per_block, build.max_seq_len, options.attention_windows};
}
}  // namespace

struct Session::State {
  State(const Engine& engine, Backend& backend, const SessionOptions& options, const RankLinks& links)
      : spec(rankSpecOf(engine.architecture(), engine.config(), engine.rank(), options.attention_windows)),
        vocabulary(vocabularyOf(engine.config(), options.max_added_tokens)),
        activations(backend, spec, vocabulary, links, options.max_num_tokens, options.max_batch_size),
        context(backend.createContext()),
        position_tables(spec, engine.buildConfig().max_seq_len, backend),
        kv(engine.config(), spec, engine.rank(), kvOptions(engine.buildConfig(), options)),
        adapter_groups(static_cast<int32_t>(spec.layers.size())) {
    const ModelConfig& config = engine.config();
    kv.allocate(backend, options.kv_blocks);
    host_weights = loadWeights(engine);
    decoder = std::make_unique<Decoder>(spec, vocabulary, importWeights(host_weights, engine, backend),
                                        position_tables.ofLayers(), links);
    if (holdsLogits(config, engine.rank())) {
      num_host_logits = static_cast<size_t>(mostLogits(config, options));
      host_logits = std::make_unique_for_overwrite<float[]>(num_host_logits);
    }
  }

  ModelSpec spec;
  VocabularyShape vocabulary;
  Stream stream;
  DecoderActivations activations;
  std::unique_ptr<StepContext> context;
  DevicePositionTables position_tables;
  RankKvCache kv;
  ModelWeights host_weights;
  std::unique_ptr<Decoder> decoder;
  AdapterGroups adapter_groups;
  // [mostLogits()]. Not initialised, so that pages for rows of contexts are taken only when a request is scored.
  std::unique_ptr<float[]> host_logits;
  size_t num_host_logits = 0;
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

KvCacheShape Session::kvCache(const ModelConfig& config, const BuildConfig& build, const SessionOptions& options) {
  return kvCacheShape(config, kvOptions(build, resolved(build, options)));
}

SessionMemory Session::memoryNeeds(const Engine& engine, const SessionOptions& options) {
  return memoryNeeds(engine.config(), engine.buildConfig(), engine.rank(), static_cast<int64_t>(engine.weightBytes()),
                     options);
}

SessionMemory Session::memoryNeeds(const ModelConfig& config, const BuildConfig& build, int32_t rank,
                                   int64_t weight_bytes, const SessionOptions& given) {
  const SessionOptions options = resolved(build, given);
  const bool last_stage = config.mapping.ppRank(rank) + 1 == config.mapping.pp_size;
  const ModelSpec spec = rankSpecOf(findArchitecture(config.architecture), config, rank);
  constexpr int64_t kFloat = sizeof(float);
  SessionMemory memory;
  memory.weights = weight_bytes;
  memory.kv_cache = RankKvCache(config, spec, rank, kvOptions(build, options)).blockBytes() * options.kv_blocks;
  memory.activations =
      DecoderActivations::bytes(spec, vocabularyOf(config, options.max_added_tokens), DType::kFloat32,
                                config.mapping.tp_size, last_stage, options.max_num_tokens, options.max_batch_size);
  memory.activations += DevicePositionTables::bytes(spec, build.max_seq_len);
  if (holdsLogits(config, rank)) {
    memory.host = mostLogits(config, options) * kFloat;
  }
  return memory;
}

const ModelWeights& Session::baseWeights() const { return state_->host_weights; }

std::span<const float> Session::run(const StepInput& input) {
  State& s = *state_;
  backend_->prepare({.tokens = input.tokens,
                     .sequences = input.sequences,
                     .logits_rows = input.logits_rows,
                     .groups = s.adapter_groups.begin(input, *adapters_)},
                    *s.context);
  s.kv.copy(input.copies, *backend_, s.stream);
  const ModelConfig& config = engine_->config();
  const bool keeps = holdsLogits(config, engine_->rank());
  const auto count = keeps ? input.logits_rows.size() * static_cast<size_t>(logitsWidth(input, config.vocab_size)) : 0;
  // If the step has so many rows of logits that host_logits is too small, it allocates memory for them; it is freed
  // here, at the next step.
  std::vector<float>().swap(s.context_logits);
  if (count > s.num_host_logits) s.context_logits.resize(count);
  const std::span<float> host =
      count > s.num_host_logits ? std::span(s.context_logits) : std::span(s.host_logits.get(), count);
  const auto sink = [&](int64_t first, const ConstMatrix& logits) {
    if (!keeps) return;
    const auto to =
        host.subspan(static_cast<size_t>(first * logits.cols), static_cast<size_t>(logits.rows * logits.cols));
    backend_->download(to.data(), logits.data, to.size() * sizeof(float), s.stream);
    backend_->synchronize(s.stream);
    roundTo(config.logits_dtype, to);
  };
  // Passed by reference, because a std::function that holds the lambda itself would allocate memory.
  s.decoder->run(input, s.kv.layers(), s.activations, s.adapter_groups, *backend_, *s.context, s.stream,
                 std::ref(sink));
  return host;
}

}  // namespace chorus
