#include "runtime/return_sequences.h"

namespace chorus {

int32_t numSequences(const executor::Request& request) {
  const auto& config = request.getSamplingConfig();
  const int32_t asked = config.getNumReturnSequences().value_or(1);
  return config.getBeamWidth() > 1 || asked > kMostReturnSequences ? 1 : asked;
}

executor::OutputConfig outputOfSequence(const executor::Request& request, int32_t index) {
  executor::OutputConfig output = request.getOutputConfig();
  if (index > 0) output.returnContextLogits = output.returnPromptLogProbs = false;
  if (!output.returnLogProbs && !output.returnPromptLogProbs) output.topLogProbs = 0;
  return output;
}

}  // namespace chorus
