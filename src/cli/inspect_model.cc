// Inspects models of all sources, checkpoints, engines and tokenizers with the readers of convert, build and serve.
#include "base/cpu_features.h"
#include "base/error.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/reader.h"
#include "cli/inspect_paths.h"
#include "convert/sources/sources.h"
#include "engine/engine.h"
#include "engine/engine_layout.h"
#include "engine/session.h"
#include "models/architecture.h"
#include "runtime/memory_needs.h"
#include "text/generation_defaults.h"
#include "text/text_codec.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

void describeConfig(const ModelConfig& config, Inspection& found) {
  found.add("architecture", config.architecture);
  found.add("dtype", std::string(dtypeName(config.dtype)));
  if (const auto quantisation = weightQuantisation(config)) {
    const int64_t group = quantisation->format.group;
    const std::string& algo = *config.quantization.quant_algo;
    found.add("quantization",
              {{"quant_algo", algo}, {"group_size", group}, {"exclude_modules", quantisation->excluded}},
              fmt::format("{}, {}, all linears but {}", algo,
                          group > 0 ? fmt::format("a scale for {} inputs", group) : "a scale for each output",
                          fmt::join(quantisation->excluded, ", ")));
  }
  found.add("layers", config.num_hidden_layers);
  found.add("hidden size", config.hidden_size);
  found.add("attention heads",
            {{"query", config.num_attention_heads},
             {"key and value", config.num_key_value_heads},
             {"size", config.head_size}},
            fmt::format("{} query, {} key and value, of size {}", config.num_attention_heads,
                        config.num_key_value_heads, config.head_size));
  found.add("vocabulary", config.vocab_size);
  found.add("positions", config.max_position_embeddings);
  found.add("ranks", {{"tp_size", config.mapping.tp_size}, {"pp_size", config.mapping.pp_size}},
            fmt::format("{} tensor parallel x {} pipeline", config.mapping.tp_size, config.mapping.pp_size));
}

int64_t parameterCount(const WeightTable& table, const ModelConfig& config) {
  int64_t count = 0;
  for (const WeightRow& row : table) {
    const int64_t layers = row.layers.empty() ? config.num_hidden_layers : std::ssize(row.layers);
    int64_t elements = (row.stage == Stage::kEveryLayer ? layers : 1) * std::max<int64_t>(row.experts, 1);
    for (const int64_t extent : row.shape) elements *= extent;
    count += elements;
  }
  return count;
}

// Reports whether the memory that is free now is enough.
void describeFit(const MemoryNeeds& needs, Inspection& found) {
  const size_t available = availableMemory();
  const bool fits = needs.fit(static_cast<int64_t>(available));
  found.add(
      "memory to serve it", {{"needs", needs.total()}, {"free", available}, {"fits", fits}},
      fmt::format("{}; {} here: {} are free", needs.text(), fits ? "fits" : "does not fit", bytesText(available)));
}

// Reports the memory that an engine of this model takes with these limits, and one sequence of max_seq_len tokens. Its
// time grows with ranks * layers, so the tensors of all ranks must have been found before.
void describeCost(const WeightTable& table, const ModelConfig& config, int64_t max_seq_len, BuildConfig build,
                  Inspection& found) {
  found.add("parameters", parameterCount(table, config));
  uint64_t weights = 0, all_weights = 0;
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) {
    const uint64_t of_rank = packedWeightBytes(table, config, rank, weightPacker(BuildConfig{}.backend));
    weights = std::max(weights, of_rank);
    all_weights += of_rank;
  }
  build.max_seq_len = static_cast<int32_t>(std::clamp<int64_t>(max_seq_len, 1, 1 << 28));
  const MemoryNeeds needs =
      leastMemory(config, build, static_cast<int64_t>(all_weights), {}, executor::PeftCacheConfig());
  found.addBytes("weights in memory", weights, config.mapping.worldSize() > 1 ? "the largest rank" : "");
  found.addBytes("KV cache per token", static_cast<uint64_t>(Session::kvCache(config, build).token_bytes));
  found.addBytes("KV cache of a longest sequence", static_cast<uint64_t>(needs.kv_sequence));
  describeFit(needs, found);
}

// The configuration with which serve builds an engine from a Hugging Face directory.
BuildConfig servedBuild() {
  BuildConfig build;
  build.lora_plugin = build.dora_plugin = true;
  return build;
}

// Adds the facts about the directory's tokenizer. Throws Error(kInvalidArgument) if an end token is not in the model's
// vocabulary. model_vocabulary: 0 if it is not known.
void describeTokenizer(const fs::path& dir, Inspection& found, int64_t model_vocabulary) {
  const auto codec = loadTextCodec(dir);
  found.add("tokenizer", codec->vocabSize(),
            fmt::format("{} tokens, {}", codec->vocabSize(),
                        codec->hasChatTemplate() ? "with a chat template" : "no chat template"));
  const auto defaults = readGenerationDefaults(dir, codec->eosTokenId());
  std::string ends;
  for (const int32_t id : defaults.end_ids) ends += (ends.empty() ? "" : ", ") + std::to_string(id);
  found.add("end tokens", defaults.end_ids, ends.empty() ? "none" : ends);
  for (const int32_t id : defaults.end_ids) {
    if (model_vocabulary == 0 || id < model_vocabulary) continue;
    fail(ErrorCode::kInvalidArgument, "{}: end token {} is not in the model's vocabulary of {}", dir.string(), id,
         model_vocabulary);
  }
}
}  // namespace

void inspectModel(const fs::path& path, Inspection& found) {
  const SourceReader& reader = sourceReaderOf(path);
  found.setKind(std::string(reader.kind));
  const SourceModel model = reader.open(path, {});
  describeConfig(model.config, found);
  if (model.left_out.count > 0) {
    found.add("left out", {{"tensors", model.left_out.count}, {"bytes", model.left_out.bytes}},
              fmt::format("{} tensors of parts beside the text model, {:.1f} MB", model.left_out.count,
                          static_cast<double>(model.left_out.bytes) / 1e6));
  }
  describeCost(model.table, model.config, model.config.max_position_embeddings, servedBuild(), found);
  if (hasTokenizer(path)) {
    describeTokenizer(path, found, model.config.vocab_size);
  } else {
    found.add("tokenizer", nullptr, "none here: serve needs --tokenizer_dir");
  }
}

void inspectCheckpoint(const fs::path& dir, Inspection& found) {
  found.setKind("TensorRT-LLM checkpoint");
  const auto checkpoint = CheckpointReader::open(dir);
  const ModelConfig& config = checkpoint.config();
  describeConfig(config, found);
  const WeightTable table = architectureOf(config, (dir / "config.json").string()).weightTable(config);
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) checkpoint.rank(rank, table);
  describeCost(table, config, config.max_position_embeddings, servedBuild(), found);
}

void inspectEngine(const fs::path& dir, Inspection& found) {
  found.setKind("engine");
  const auto engine = Engine::load(dir);
  const ModelConfig& config = engine->config();
  const BuildConfig& build = engine->buildConfig();
  describeConfig(config, found);
  for (int32_t rank = 1; rank < config.mapping.worldSize(); ++rank) Engine::load(dir, rank);
  describeCost(engine->architecture().weightTable(config), config, build.max_seq_len, build, found);
  found.add("limits",
            {{"max_batch_size", build.max_batch_size},
             {"max_num_tokens", build.max_num_tokens},
             {"max_input_len", build.max_input_len},
             {"max_seq_len", build.max_seq_len}},
            fmt::format("{} requests and {} tokens a step, prompts of {}, sequences of {}", build.max_batch_size,
                        build.max_num_tokens, build.max_input_len, build.max_seq_len));
  const SessionMemory memory = Session::memoryNeeds(*engine, {});
  found.addBytes("activations", static_cast<uint64_t>(memory.activations + memory.host),
                 config.mapping.worldSize() > 1 ? "of rank 0" : "");
  const Json adapters = {{"lora_plugin", build.lora_plugin},
                         {"dora_plugin", build.dora_plugin},
                         {"max_lora_rank", build.max_lora_rank},
                         {"lora_target_modules", build.lora_target_modules}};
  const std::string modules = build.lora_target_modules.empty()
                                  ? "any module"
                                  : fmt::format("modules {}", fmt::join(build.lora_target_modules, ", "));
  found.add("adapters", adapters,
            !build.lora_plugin ? "none: built without --lora_plugin"
                               : fmt::format("{} to rank {}, {}", build.dora_plugin ? "LoRA and DoRA" : "LoRA",
                                             build.max_lora_rank, modules));
}

void inspectTokenizer(const fs::path& dir, Inspection& found) {
  found.setKind("tokenizer");
  describeTokenizer(dir, found, 0);
}

}  // namespace chorus
