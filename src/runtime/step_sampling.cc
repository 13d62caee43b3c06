// StepLoop, from the logits of a step to the next tokens.
#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "base/log.h"
#include "runtime/step_loop.h"

namespace chorus {
namespace {

bool lacksMemory(const SampleOutput& output) { return output.fault == SampleOutput::Fault::kNoMemory; }

}  // namespace

// Decides that the request fails, and lets the step go on without it.
void StepLoop::failWith(Request& request, const std::string& message) {
  log::warn("request {}: {}", request.id, message);
  requests_.decide(request, Error(ErrorCode::kInternal, message));
}

// Fails the request with the exception that is being handled, which may be of any type.
void StepLoop::failMask(Request& request) {
  try {
    throw;
  } catch (const std::exception& error) {
    failWith(request, fmt::format("Encountered an error in the token mask: {}", error.what()));
  } catch (...) {
    failWith(request, "Encountered an error in the token mask: unknown exception");
  }
}

// The masks are computed while the network runs.
void StepLoop::beginMasks() {
  for (const auto& planned : plan_.sequences) {
    const Sequence& sequence = plannedAt(planned);
    if (!planned.samples || sequence.masks == nullptr) continue;
    try {
      sequence.masks->begin(sequence.tokens());
    } catch (...) {
      failMask(sequence.request);
    }
  }
}

void StepLoop::finishMasks() {
  for (const Sampling& sampling : sampling_) {
    const Sequence& sequence = *sampling.sequence;
    if (sequence.masks == nullptr || sequence.request.verdict.kind != Verdict::Kind::kNone) continue;
    assert(sampling.end - sampling.begin == 1);  // a mask is for the next token alone
    try {
      sample_inputs_[sampling.begin].mask = sequence.masks->finish();
    } catch (...) {
      failMask(sequence.request);
    }
  }
}

// Gathers what the sampler computes from this step's logits, [rows, width].
void StepLoop::collectInputs(std::span<const float> logits, int64_t width) {
  const int32_t model_vocab = options_.requests.vocab_size;
  sampling_.clear();
  sample_inputs_.clear();
  scored_.clear();
  score_inputs_.clear();
  for (size_t i = 0; i < plan_.sequences.size(); ++i) {
    const PlannedSequence& planned = plan_.sequences[i];
    Sequence& sequence = plannedAt(planned);
    sequence.computed(planned.num_tokens);
    blocks_.commit(sequence);
    const RowRange range = builder_.logitsOf(i);
    const int32_t rows = range.end - range.begin;
    if (rows == 0) continue;
    // The row's valid columns are the vocabulary of the model, or of its adapter if larger. The step is as wide as its
    // widest adapter's vocabulary.
    const PreparedAdapter* adapter = sequence.adapter.parts.get();
    const int64_t added_to = adapter != nullptr ? adapter->vocab_size : 0;
    const LogitsRows own{logits.data() + range.begin * width, rows,
                         std::max(model_vocab, static_cast<int32_t>(added_to)), width};
    const int32_t first_row = sequence.numCached() - rows;
    Answer& answer = sequence.request.answerOf(sequence);
    answer.scorePrompt(sequence, own, first_row, score_inputs_);
    scored_.resize(score_inputs_.size(), &sequence);
    answer.keepLogits(own, first_row, planned.samples);
    if (!planned.samples) continue;
    const size_t begin = sample_inputs_.size();
    DecodingStrategy& strategy = sequence.request.strategy();
    strategy.addInputs(sequence, own.last(std::min(rows, strategy.numRows(sequence))), sample_inputs_);
    sampling_.push_back({&sequence, begin, sample_inputs_.size()});
  }
}

// Runs the clients' logits post-processors and passes their logits to the sampler.
void StepLoop::postProcess() {
  post_processed_.clear();
  post_processed_of_.clear();
  for (size_t s = 0; s < sampling_.size(); ++s) {
    Sequence& sequence = *sampling_[s].sequence;
    if (!sequence.post_processing.wanted()) continue;
    assert(sampling_[s].end - sampling_[s].begin == 1);  // a post-processor changes the next token's logits alone
    post_processed_.push_back({&sequence.post_processing, sequence.request.id, sequence.request.client_id,
                               sequence.tokens(), sample_inputs_[sampling_[s].begin].logits, ""});
    post_processed_of_.push_back(s);
  }
  post_processors_.apply(post_processed_);
  for (size_t i = 0; i < post_processed_.size(); ++i) {
    const Sampling& sampling = sampling_[post_processed_of_[i]];
    sample_inputs_[sampling.begin].logits = post_processed_[i].logits;
    if (!post_processed_[i].error.empty()) failWith(sampling.sequence->request, post_processed_[i].error);
  }
}

void StepLoop::keepPromptScores() {
  score_outputs_.resize(score_inputs_.size());
  sampler_.sample(score_inputs_, score_outputs_);
  if (std::any_of(score_outputs_.begin(), score_outputs_.end(), lacksMemory)) throw std::bad_alloc();
  for (size_t i = 0; i < scored_.size(); ++i) {
    scored_[i]->request.answerOf(*scored_[i]).keepPromptScore(score_outputs_[i]);
  }
}

// Passes the sampler's outputs to each request's strategy, for all its sequences at once.
void StepLoop::advance() {
  if (std::any_of(sample_outputs_.begin(), sample_outputs_.end(), lacksMemory)) throw std::bad_alloc();
  const auto now = Clock::now();
  sampled_.clear();
  for (const auto& [sequence, begin, end] : sampling_) {
    sampled_.push_back({sequence, std::span(sample_outputs_).subspan(begin, end - begin)});
  }
  if (std::any_of(sampled_.begin(), sampled_.end(), [](const auto& s) { return s.sequence->request.several(); })) {
    const auto place = [](const SampledSequence& s) { return std::pair(s.sequence->request.id, s.sequence->index); };
    std::sort(sampled_.begin(), sampled_.end(),
              [&](const SampledSequence& a, const SampledSequence& b) { return place(a) < place(b); });
  }
  for (auto begin = sampled_.begin(); begin != sampled_.end();) {
    Request& request = begin->sequence->request;
    const auto end =
        std::find_if(begin, sampled_.end(), [&](const SampledSequence& s) { return &s.sequence->request != &request; });
    const std::span<const SampledSequence> group(begin, end);
    begin = end;
    if (request.verdict.kind != Verdict::Kind::kNone) continue;
    for (const SampledSequence& one : group) one.sequence->generate();
    try {
      request.strategy().advance(group, now, changes_);
    } catch (const Error& error) {
      requests_.decide(request, error);
    }
  }
}

}  // namespace chorus
