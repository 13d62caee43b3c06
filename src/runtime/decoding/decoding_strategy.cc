#include "runtime/decoding/decoding_strategy.h"

#include <algorithm>
#include <cassert>

#include "runtime/decoding/sampling_strategy.h"
#include "runtime/request.h"
#include "runtime/sequence.h"

namespace chorus {

DecodingStrategy::DecodingStrategy() = default;
DecodingStrategy::~DecodingStrategy() = default;

void DecodingStrategy::end(Sequence& sequence) noexcept {
  const auto found = std::find_if(sequences_.begin(), sequences_.end(),
                                  [&](const auto& candidate) { return candidate.get() == &sequence; });
  assert(found != sequences_.end());
  forget(sequence);
  sequences_.erase(found);
}

Sequence& DecodingStrategy::fork(const Sequence& parent, int32_t index) {
  auto child = std::make_unique<Sequence>(parent, index);
  sequences_.reserve(sequences_.size() + 1);
  parent.request.copyAnswer(parent, index);
  const auto place = std::find_if(sequences_.begin(), sequences_.end(),
                                  [&](const auto& candidate) { return candidate->index > index; });
  return **sequences_.insert(place, std::move(child));
}

std::unique_ptr<DecodingStrategy> makeStrategy(const StrategyInput& input) {
  return std::make_unique<SamplingStrategy>(input);
}

}  // namespace chorus
