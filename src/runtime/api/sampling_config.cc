#include "chorus/sampling_config.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/api/argument_check.h"

namespace chorus::executor {
namespace {

// TensorRT-LLM's limits of beam search.
constexpr SizeType32 kMaxBeamWidth = 1024;
constexpr std::size_t kMaxBeamWidthArrayLength = 8;

// NaN fails every comparison, so a condition states what must hold.
#define CHORUS_CHECK_OPTIONAL(field, condition)                                   \
  do {                                                                            \
    if (field.has_value()) check((condition), #condition, #field, field.value()); \
  } while (false)

void checkTopK(const std::optional<SizeType32>& topK) { CHORUS_CHECK_OPTIONAL(topK, topK.value() >= 0); }

void checkTopP(const std::optional<FloatType>& topP) {
  CHORUS_CHECK_OPTIONAL(topP, topP.value() > 0.f);
  CHORUS_CHECK_OPTIONAL(topP, topP.value() <= 1.f);
}

void checkTopPMin(const std::optional<FloatType>& topPMin) {
  CHORUS_CHECK_OPTIONAL(topPMin, topPMin.value() >= 0.f);
  CHORUS_CHECK_OPTIONAL(topPMin, topPMin.value() <= 1.f);
}

void checkTopPResetIds(const std::optional<TokenIdType>& topPResetIds) {
  CHORUS_CHECK_OPTIONAL(topPResetIds, topPResetIds.value() >= 0);
}

void checkTopPDecay(const std::optional<FloatType>& topPDecay) {
  CHORUS_CHECK_OPTIONAL(topPDecay, topPDecay.value() > 0.f);
  CHORUS_CHECK_OPTIONAL(topPDecay, topPDecay.value() <= 1.f);
}

void checkTemperature(const std::optional<FloatType>& temperature) {
  CHORUS_CHECK_OPTIONAL(temperature, temperature.value() >= 0.f);
}

void checkMinTokens(const std::optional<SizeType32>& minTokens) {
  CHORUS_CHECK_OPTIONAL(minTokens, minTokens.value() >= 0);
}

void checkBeamSearchDiversityRate(const std::optional<FloatType>& beamSearchDiversityRate) {
  CHORUS_CHECK_OPTIONAL(beamSearchDiversityRate, beamSearchDiversityRate.value() >= 0.f);
}

void checkRepetitionPenalty(const std::optional<FloatType>& repetitionPenalty) {
  CHORUS_CHECK_OPTIONAL(repetitionPenalty, repetitionPenalty.value() > 0.f);
}

void checkLengthPenalty(const std::optional<FloatType>& lengthPenalty) {
  CHORUS_CHECK_OPTIONAL(lengthPenalty, lengthPenalty.value() >= 0.f);
}

void checkEarlyStopping(const std::optional<SizeType32>& earlyStopping) {
  CHORUS_CHECK_OPTIONAL(earlyStopping, earlyStopping.value() >= 0);
}

void checkNoRepeatNgramSize(const std::optional<SizeType32>& noRepeatNgramSize) {
  CHORUS_CHECK_OPTIONAL(noRepeatNgramSize, noRepeatNgramSize.value() >= 0);
}

void checkMinP(const std::optional<FloatType>& minP) {
  CHORUS_CHECK_OPTIONAL(minP, minP.value() >= 0.f && minP.value() <= 1.0f);
}

void checkPromptIgnoreLength(const std::optional<SizeType32>& promptIgnoreLength) {
  CHORUS_CHECK_OPTIONAL(promptIgnoreLength, promptIgnoreLength.value() >= 0);
}

void checkNumReturnSequences(const std::optional<SizeType32>& numReturnSequences, SizeType32 beamWidth) {
  CHORUS_CHECK_OPTIONAL(numReturnSequences, numReturnSequences.value() > 0);
  CHORUS_CHECK_OPTIONAL(numReturnSequences, beamWidth == 1 || numReturnSequences.value() <= beamWidth);
}

void checkBeamWidth(SizeType32 beamWidth) {
  if (beamWidth <= 0) {
    throw std::invalid_argument(
        fmt::format("Requested value: {} for beamWidth is invalid. To de-activate beam searching set "
                    "beamWidth to 1 instead.",
                    beamWidth));
  }
  check(beamWidth <= kMaxBeamWidth, "beamWidth <= kMaxBeamWidth", "beamWidth", beamWidth);
}

// The largest of beamWidth and the widths in the array, which it checks.
SizeType32 widest(const std::optional<std::vector<SizeType32>>& array, SizeType32 beamWidth) {
  if (!array) return beamWidth;
  check(array->size() <= kMaxBeamWidthArrayLength, "array.size() <= kMaxBeamWidthArrayLength", "beamWidthArray.size()",
        array->size());
  for (const SizeType32 width : *array) {
    check(width > 0 && width < kMaxBeamWidth, "bm > 0 && bm < kMaxBeamWidth", "beamWidthArray", width);
    beamWidth = std::max(beamWidth, width);
  }
  return beamWidth;
}

}  // namespace

SamplingConfig::SamplingConfig(SizeType32 beamWidth, std::optional<SizeType32> topK, std::optional<FloatType> topP,
                               std::optional<FloatType> topPMin, std::optional<TokenIdType> topPResetIds,
                               std::optional<FloatType> topPDecay, std::optional<RandomSeedType> seed,
                               std::optional<FloatType> temperature, std::optional<SizeType32> minTokens,
                               std::optional<FloatType> beamSearchDiversityRate,
                               std::optional<FloatType> repetitionPenalty, std::optional<FloatType> presencePenalty,
                               std::optional<FloatType> frequencyPenalty, std::optional<FloatType> lengthPenalty,
                               std::optional<SizeType32> earlyStopping, std::optional<SizeType32> noRepeatNgramSize,
                               std::optional<SizeType32> numReturnSequences, std::optional<FloatType> minP,
                               std::optional<std::vector<SizeType32>> beamWidthArray)
    : beamWidth_(beamWidth),
      topK_(topK),
      topP_(topP),
      topPMin_(topPMin),
      topPResetIds_(topPResetIds),
      topPDecay_(topPDecay),
      seed_(seed),
      temperature_(temperature),
      minTokens_(minTokens),
      beamSearchDiversityRate_(beamSearchDiversityRate),
      repetitionPenalty_(repetitionPenalty),
      presencePenalty_(presencePenalty),
      frequencyPenalty_(frequencyPenalty),
      lengthPenalty_(lengthPenalty),
      earlyStopping_(earlyStopping),
      noRepeatNgramSize_(noRepeatNgramSize),
      numReturnSequences_(numReturnSequences),
      minP_(minP),
      beamWidthArray_(std::move(beamWidthArray)) {
  checkBeamWidth(beamWidth);
  checkTopK(topK);
  checkTopP(topP);
  checkTopPMin(topPMin);
  checkTopPResetIds(topPResetIds);
  checkTopPDecay(topPDecay);
  checkTemperature(temperature);
  checkMinTokens(minTokens);
  checkBeamSearchDiversityRate(beamSearchDiversityRate);
  checkRepetitionPenalty(repetitionPenalty);
  checkLengthPenalty(lengthPenalty);
  checkEarlyStopping(earlyStopping);
  checkNoRepeatNgramSize(noRepeatNgramSize);
  checkNumReturnSequences(numReturnSequences, beamWidth);
  checkMinP(minP);
  beamWidth_ = widest(beamWidthArray_, beamWidth);
}

void SamplingConfig::setBeamWidth(SizeType32 v) {
  checkBeamWidth(v);
  beamWidth_ = v;
}

void SamplingConfig::setTopK(std::optional<SizeType32> v) {
  checkTopK(v);
  topK_ = v;
}

void SamplingConfig::setTopP(std::optional<FloatType> v) {
  checkTopP(v);
  topP_ = v;
}

void SamplingConfig::setTopPMin(std::optional<FloatType> v) {
  checkTopPMin(v);
  topPMin_ = v;
}

void SamplingConfig::setTopPResetIds(std::optional<TokenIdType> v) {
  checkTopPResetIds(v);
  topPResetIds_ = v;
}

void SamplingConfig::setTopPDecay(std::optional<FloatType> v) {
  checkTopPDecay(v);
  topPDecay_ = v;
}

void SamplingConfig::setTemperature(std::optional<FloatType> v) {
  checkTemperature(v);
  temperature_ = v;
}

void SamplingConfig::setMinTokens(std::optional<SizeType32> v) {
  checkMinTokens(v);
  minTokens_ = v;
}

void SamplingConfig::setBeamSearchDiversityRate(std::optional<FloatType> v) {
  checkBeamSearchDiversityRate(v);
  beamSearchDiversityRate_ = v;
}

void SamplingConfig::setRepetitionPenalty(std::optional<FloatType> v) {
  checkRepetitionPenalty(v);
  repetitionPenalty_ = v;
}

void SamplingConfig::setLengthPenalty(std::optional<FloatType> v) {
  checkLengthPenalty(v);
  lengthPenalty_ = v;
}

void SamplingConfig::setEarlyStopping(std::optional<SizeType32> v) {
  checkEarlyStopping(v);
  earlyStopping_ = v;
}

void SamplingConfig::setNoRepeatNgramSize(std::optional<SizeType32> v) {
  checkNoRepeatNgramSize(v);
  noRepeatNgramSize_ = v;
}

void SamplingConfig::setMinP(std::optional<FloatType> v) {
  checkMinP(v);
  minP_ = v;
}

void SamplingConfig::setPromptIgnoreLength(std::optional<SizeType32> v) {
  checkPromptIgnoreLength(v);
  promptIgnoreLength_ = v;
}

void SamplingConfig::setNumReturnSequences(std::optional<SizeType32> v) {
  checkNumReturnSequences(v, beamWidth_);
  numReturnSequences_ = v;
}

void SamplingConfig::setBeamWidthArray(std::optional<std::vector<SizeType32>> v) {
  beamWidth_ = widest(v, beamWidth_);
  beamWidthArray_ = std::move(v);
}

#undef CHORUS_CHECK_OPTIONAL

}  // namespace chorus::executor
