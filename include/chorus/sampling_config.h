// Settings by which a request's tokens are chosen. Constructor and setters check their arguments and throw
// std::invalid_argument with TensorRT-LLM's wording.
#pragma once

#include "chorus/types.h"

namespace chorus::executor {

// An unset optional means "not requested", which can differ from its default value. Sampling is greedy if topK is 1, if
// temperature is 0, or if none of temperature, topK (above 0), topP and minP is set (TensorRT-LLM's decoder treats topK
// 0 and topP 0 as greedy).
//
// Order of operations on a row of logits, which is TensorRT-LLM's:
//  1. embeddingBias is added.
//  2. The row is divided by temperature.
//  3. repetitionPenalty divides logits above 0 and multiplies those below.
//  4. presencePenalty, and frequencyPenalty times the token's count, are subtracted.
//  5. Banned: end tokens below minTokens, tokens that would repeat an n-gram, tokens that would complete a bad word.
//  6. minP, topK and topP filter the tokens.
// Penalties, n-grams and bad words look at the prompt and the generated tokens.
//
// topPDecay acts if topK is not set: each token multiplies topP by it, down to topPMin, and topPResetIds restores topP.
// beamSearchDiversityRate, lengthPenalty and earlyStopping act on beams only.
//
// Without beams, numReturnSequences (1024 at most) samples that many answers to one prompt, which is computed once.
// Responses carry the request's id and a sequenceIndex. Sequence i samples with seed + i. Logits and log probabilities
// of the prompt come with sequence 0. An error ends all sequences.
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
  // With beams, the number of beams that are returned.
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
  // Chorus: number of the prompt's first tokens that presencePenalty and frequencyPenalty ignore. With the prompt's
  // length they act as in OpenAI's API. Later versions of TensorRT-LLM have it as a constructor parameter.
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
