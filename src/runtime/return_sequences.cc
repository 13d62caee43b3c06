#include "runtime/return_sequences.h"

namespace chorus {

int32_t numSequences(const executor::Request& request) {
  const auto& config = request.getSamplingConfig();
  const int32_t asked = config.getNumReturnSequences().value_or(1);
  return config.getBeamWidth() > 1 || asked > kMostReturnSequences ? 1 : asked;
}

executor::Request requestOfSequence(const executor::Request& request, int32_t index) {
  executor::Request own = request;
  executor::SamplingConfig sampling = request.getSamplingConfig();
  sampling.setSeed(sampling.getSeed().value_or(0) + static_cast<uint64_t>(index));
  own.setSamplingConfig(sampling);
  executor::OutputConfig output = request.getOutputConfig();
  if (index > 0) output.returnContextLogits = output.returnPromptLogProbs = false;
  if (!output.returnLogProbs && !output.returnPromptLogProbs) output.topLogProbs = 0;
  own.setOutputConfig(output);
  return own;
}

}  // namespace chorus
