#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "chorus/executor.h"
#include "cli/backend_flags.h"
#include "cli/evaluation/summaries.h"
#include "cli/evaluation/summary_prompt.h"
#include "cli/executor_requests.h"
#include "text/generation_defaults.h"

namespace chorus {
namespace {

executor::ExecutorConfig configOf(const SummarizeArgs& args) {
  executor::ExecutorConfig config;
  config.setNumThreads(args.threads);
  config.setBackend(args.backend);
  config.setIsa(checkedIsa(args.isa, args.backend));
  if (args.enable_chunked_context) config.setEnableChunkedContext(true);
  executor::KvCacheConfig& cache = config.getKvCacheConfigRef();
  cache.setEnableBlockReuse(args.kv_cache_enable_block_reuse);
  if (args.max_tokens_in_paged_kv_cache) cache.setMaxTokens(args.max_tokens_in_paged_kv_cache);
  if (const auto fraction = args.kv_cache_free_gpu_memory_fraction) {
    cache.setFreeGpuMemoryFraction(static_cast<float>(*fraction));
  }
  if (!args.attention_windows.empty()) cache.setMaxAttentionWindowVec(args.attention_windows);
  return config;
}

// The exponential of the mean negative log probability of all tokens but the first: what summarize.py computes from the
// logits of the context and of the generation.
double perplexityOf(const executor::Result& result) {
  double sum = 0;
  size_t count = 0;
  const auto add = [&](const executor::VecLogProbs& values) {
    sum = std::accumulate(values.begin(), values.end(), sum);
    count += values.size();
  };
  if (result.promptLogProbs) add(*result.promptLogProbs);
  if (result.logProbs) add(result.logProbs->at(0));
  return std::exp(-sum / static_cast<double>(std::max<size_t>(count, 1)));
}

class EngineRun {
 public:
  EngineRun(const SummarizeArgs& args, const TextCodec& codec)
      : args_(args),
        codec_(codec),
        end_id_(endTokenOf(args, codec)),
        executor_(args.engine_dir, executor::ModelType::kDECODER_ONLY, configOf(args)),
        adapters_(openAdapters(args.lora_dirs, executor_)) {
    log::info("memory of {}:\n{}", args.engine_dir, executor_.getMemoryUse().table);
  }

  // prompts[i] is the prompt of article first + i.
  std::vector<Summary> answer(const std::vector<std::vector<int32_t>>& prompts, size_t first) {
    std::vector<executor::Request> requests;
    std::vector<size_t> articles;
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].size() <= static_cast<size_t>(args_.min_input_length)) continue;
      requests.push_back(request(prompts[i], i));
      articles.push_back(first + i);
    }
    const std::vector<executor::IdType> ids = executor_.enqueueRequests(requests);
    std::vector<Summary> summaries;
    for (size_t i = 0; i < ids.size(); ++i) summaries.push_back(collect(ids[i], articles[i]));
    return summaries;
  }

 private:
  executor::Request request(const std::vector<int32_t>& prompt, size_t place) const {
    executor::OutputConfig output;
    output.excludeInputFromOutput = true;
    output.returnLogProbs = args_.eval_ppl;
    output.returnPromptLogProbs = args_.eval_ppl;
    executor::Request request(prompt, args_.output_len, false, executor::SamplingConfig(), output);
    args_.sampling.apply(request, &codec_);
    if (end_id_) request.setEndId(*end_id_);
    if (!args_.lora_task_uids.empty()) {
      const int uid = args_.lora_task_uids[std::min(place, args_.lora_task_uids.size() - 1)];
      if (uid >= 0) request.setLoraConfig(adapters_[static_cast<size_t>(uid)]);
    }
    return request;
  }

  Summary collect(executor::IdType id, size_t article) {
    for (;;) {
      for (const executor::Response& response : executor_.awaitResponses(id)) {
        if (response.hasError()) {
          fail(errorCodeOf(response.getErrorCode()), "article {}: {}", article, response.getErrorMsg());
        }
        const executor::Result& result = response.getResult();
        if (!result.isFinal) continue;
        const std::vector<int32_t>& tokens = result.outputTokenIds.at(0);
        Summary summary{article, codec_.decode(tokens, true), tokens.size(), std::nullopt};
        if (args_.eval_ppl) summary.perplexity = perplexityOf(result);
        return summary;
      }
    }
  }

  const SummarizeArgs& args_;
  const TextCodec& codec_;
  std::optional<int32_t> end_id_;
  executor::Executor executor_;
  std::vector<executor::LoraConfig> adapters_;
};
}  // namespace

std::optional<int32_t> endTokenOf(const SummarizeArgs& args, const TextCodec& codec) {
  if (args.end_id) return *args.end_id < 0 ? std::nullopt : args.end_id;
  if (codec.eosTokenId()) return codec.eosTokenId();
  const std::vector<int32_t> ids = readGenerationDefaults(args.tokenizer_dir, std::nullopt).end_ids;
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

Summaries summarizeWithEngine(const SummarizeArgs& args, const std::vector<std::string>& prompts, bool as_chat,
                              const TextCodec& codec) {
  const PromptForm form = {.as_chat = as_chat,
                           .add_special_tokens = !args.no_add_special_tokens,
                           .max_tokens = static_cast<size_t>(args.max_input_length)};
  EngineRun run(args, codec);
  const auto batch_from = [&](size_t first, size_t count) {
    std::vector<std::vector<int32_t>> batch;
    for (size_t i = first; i < std::min(first + count, prompts.size()); ++i) {
      batch.push_back(promptTokens(prompts[i], form, codec));
    }
    return run.answer(batch, first);
  };
  Summaries summaries;
  if (const auto first = batch_from(0, 1); !first.empty()) summaries.first = first.front();
  const auto batch_size = static_cast<size_t>(args.batch_size);
  int32_t batches = 0;
  for (size_t first = 0; first < prompts.size() && batches < args.max_ite; first += batch_size) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Summary> answered = batch_from(first, batch_size);
    summaries.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    batches += answered.empty() ? 0 : 1;
    summaries.list.insert(summaries.list.end(), answered.begin(), answered.end());
  }
  return summaries;
}

}  // namespace chorus
