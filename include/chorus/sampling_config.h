// How a request's tokens are chosen. Checks happen in constructor and setters and throw std::invalid_argument with
// TensorRT-LLM's wording.
#pragma once

#include "chorus/types.h"

namespace chorus::executor {

// Unset optionals mean "not asked for", which is not the same as a default value. Greedy is topK 1 or temperature 0;
// with nothing set, greedy as well (TensorRT-LLM's decoder takes topK 0 and topP 0 as greedy).
//
// What happens to a row of logits, in TensorRT-LLM's order: embeddingBias is added, temperature divides,
// repetitionPenalty divides (multiplies below 0), presencePenalty and frequencyPenalty times the count are subtracted,
// end tokens are banned below minTokens, then what would repeat an n-gram, then what would end a bad word; then minP,
// topK and topP filter. Penalties, n-grams and bad words look at the prompt and at what was generated. topPDecay acts
// where topK is not given: each token multiplies topP by it, down to topPMin, and topPResetIds sets it back.
// beamSearchDiversityRate, lengthPenalty and earlyStopping act on beams alone.
//
// Without beams numReturnSequences samples so many answers (1024 at most) to one prompt, which is computed once. The
// responses carry the request's id and a sequenceIndex; sequence i samples with seed + i; logits and log probabilities
// of the prompt come with sequence 0. An error ends all of them.
class SamplingConfig {
 public:
  explicit SamplingConfig(
      SizeType32 beamWidth = 1, std::optional<SizeType32> topK = std::nullopt,
      std::optional<FloatType> topP = std::nullopt, std::optional<FloatType> topPMin = std::nullopt,
      std::optional<TokenIdType> topPResetIds = std::nullopt, std::optional<FloatType> topPDecay = std::nullopt,
      std::optional<RandomSeedType> seed = std::nullopt, std::optional<FloatType> temperature = std::nullopt,
      std::optional<SizeType32> minTokens = std::nullopt,
      std::optional<FloatType> beamSearchDiversityRate = std::nullopt,
      std::optional<FloatType> repetitionPenalty = std::nullopt,
      std::optional<FloatType> presencePenalty = std::nullopt, std::optional<FloatType> frequencyPenalty = std::nullopt,
      std::optional<FloatType> lengthPenalty = std::nullopt, std::optional<SizeType32> earlyStopping = std::nullopt,
      std::optional<SizeType32> noRepeatNgramSize = std::nullopt,
      std::optional<SizeType32> numReturnSequences = std::nullopt, std::optional<FloatType> minP = std::nullopt,
      std::optional<std::vector<SizeType32>> beamWidthArray = std::nullopt);

  bool operator==(const SamplingConfig&) const = default;

  SizeType32 getBeamWidth() const { return beamWidth_; }
  // With beams, how many of them are answered.
  SizeType32 getNumReturnBeams() const {
    return beamWidth_ > 1 && numReturnSequences_ ? *numReturnSequences_ : beamWidth_;
  }
  std::optional<SizeType32> getTopK() const { return topK_; }
  std::optional<FloatType> getTopP() const { return topP_; }
  std::optional<FloatType> getTopPMin() const { return topPMin_; }
  std::optional<TokenIdType> getTopPResetIds() const { return topPResetIds_; }
  std::optional<FloatType> getTopPDecay() const { return topPDecay_; }
  std::optional<RandomSeedType> getSeed() const { return seed_; }
  std::optional<RandomSeedType> getRandomSeed() const { return seed_; }
  std::optional<FloatType> getTemperature() const { return temperature_; }
  std::optional<SizeType32> getMinTokens() const { return minTokens_; }
  std::optional<SizeType32> getMinLength() const { return minTokens_; }
  std::optional<FloatType> getBeamSearchDiversityRate() const { return beamSearchDiversityRate_; }
  std::optional<FloatType> getRepetitionPenalty() const { return repetitionPenalty_; }
  std::optional<FloatType> getPresencePenalty() const { return presencePenalty_; }
  std::optional<FloatType> getFrequencyPenalty() const { return frequencyPenalty_; }
  std::optional<FloatType> getLengthPenalty() const { return lengthPenalty_; }
  std::optional<SizeType32> getEarlyStopping() const { return earlyStopping_; }
  std::optional<SizeType32> getNoRepeatNgramSize() const { return noRepeatNgramSize_; }
  std::optional<SizeType32> getNumReturnSequences() const { return numReturnSequences_; }
  std::optional<FloatType> getMinP() const { return minP_; }
  std::optional<std::vector<SizeType32>> getBeamWidthArray() const { return beamWidthArray_; }
  // Chorus: how many of the prompt's first tokens presencePenalty and frequencyPenalty leave out; the prompt's length
  // gives what OpenAI's API means by them. Later TensorRT-LLM has it too, in its constructor.
  std::optional<SizeType32> getPromptIgnoreLength() const { return promptIgnoreLength_; }

  void setBeamWidth(SizeType32 v);
  void setTopK(std::optional<SizeType32> v);
  void setTopP(std::optional<FloatType> v);
  void setTopPMin(std::optional<FloatType> v);
  void setTopPResetIds(std::optional<TokenIdType> v);
  void setTopPDecay(std::optional<FloatType> v);
  void setSeed(std::optional<RandomSeedType> v) { seed_ = v; }
  void setRandomSeed(std::optional<RandomSeedType> v) { seed_ = v; }
  void setTemperature(std::optional<FloatType> v);
  void setMinTokens(std::optional<SizeType32> v);
  void setMinLength(std::optional<SizeType32> v) { setMinTokens(v); }
  void setBeamSearchDiversityRate(std::optional<FloatType> v);
  void setRepetitionPenalty(std::optional<FloatType> v);
  void setPresencePenalty(std::optional<FloatType> v) { presencePenalty_ = v; }
  void setFrequencyPenalty(std::optional<FloatType> v) { frequencyPenalty_ = v; }
  void setLengthPenalty(std::optional<FloatType> v);
  void setEarlyStopping(std::optional<SizeType32> v);
  void setNoRepeatNgramSize(std::optional<SizeType32> v);
  void setNumReturnSequences(std::optional<SizeType32> v);
  void setMinP(std::optional<FloatType> v);
  void setBeamWidthArray(std::optional<std::vector<SizeType32>> v);
  void setPromptIgnoreLength(std::optional<SizeType32> v);

 private:
  SizeType32 beamWidth_;
  std::optional<SizeType32> topK_;
  std::optional<FloatType> topP_, topPMin_;
  std::optional<TokenIdType> topPResetIds_;
  std::optional<FloatType> topPDecay_;
  std::optional<RandomSeedType> seed_;
  std::optional<FloatType> temperature_;
  std::optional<SizeType32> minTokens_;
  std::optional<FloatType> beamSearchDiversityRate_, repetitionPenalty_, presencePenalty_, frequencyPenalty_,
      lengthPenalty_;
  std::optional<SizeType32> earlyStopping_, noRepeatNgramSize_, numReturnSequences_;
  std::optional<FloatType> minP_;
  std::optional<std::vector<SizeType32>> beamWidthArray_;
  std::optional<SizeType32> promptIgnoreLength_;
};

}  // namespace chorus::executor
