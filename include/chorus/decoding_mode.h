// The mode of DecodingConfig: how tokens are chosen, as a set of flags.
#pragma once

#include <cstdint>

namespace chorus::executor {

// The Executor accepts Auto() and TopKTopP(), with which each request's SamplingConfig decides alone, and refuses the
// others by name.
class DecodingMode {
 public:
  using UnderlyingType = std::uint32_t;

  static constexpr DecodingMode Auto() { return DecodingMode(kAuto); }
  static constexpr DecodingMode TopK() { return DecodingMode(kTopK | kSampling | kUseMinP); }
  static constexpr DecodingMode TopP() { return DecodingMode(kTopP | kSampling | kUseMinP); }
  static constexpr DecodingMode TopKTopP() { return DecodingMode(kTopKTopP | kSampling | kUseMinP); }
  static constexpr DecodingMode BeamSearch() { return DecodingMode(kBeamSearch | kSampling); }
  static constexpr DecodingMode Medusa() {
    return DecodingMode(kMedusa | kUseMinLength | kStops | kUseExplicitEosStop);
  }
  static constexpr DecodingMode Lookahead() {
    return DecodingMode(kLookahead | kUseMinLength | kStops | kUseExplicitEosStop);
  }
  static constexpr DecodingMode ExplicitDraftTokens() {
    return DecodingMode(kExplicitDraftTokens | kStops | kUseExplicitEosStop);
  }
  static constexpr DecodingMode ExternalDraftTokens() { return DecodingMode(kExternalDraftTokens | kSampling); }
  static constexpr DecodingMode Eagle() { return DecodingMode(kEagle | kStops | kUseExplicitEosStop); }

  explicit constexpr DecodingMode(UnderlyingType state) : state_(state) {}

  constexpr DecodingMode useTemperature(bool on) { return set(kUseTemperature, on); }
  constexpr DecodingMode useOccurrencePenalties(bool on) { return set(kUseOccurrencePenalties, on); }
  constexpr DecodingMode usePresencePenalty(bool on) { return set(kUsePresencePenalties, on); }
  constexpr DecodingMode useRepetitionPenalty(bool on) { return set(kUseRepetitionPenalties, on); }
  constexpr DecodingMode useFrequencyPenalty(bool on) { return set(kUseFrequencyPenalties, on); }
  constexpr DecodingMode useMinLength(bool on) { return set(kUseMinLength, on); }
  constexpr DecodingMode useBanTokens(bool on) { return set(kUseBanTokens, on); }
  constexpr DecodingMode useBanWords(bool on) { return set(kUseBanWords, on); }
  constexpr DecodingMode useNoRepeatNgramSize(bool on) { return set(kUseNoRepeatNgramSize, on); }
  constexpr DecodingMode useStopWords(bool on) { return set(kUseStopWords, on); }
  constexpr DecodingMode useMaxLengthStop(bool on) { return set(kUseMaxLengthStop, on); }
  constexpr DecodingMode useExplicitEosStop(bool on) { return set(kUseExplicitEosStop, on); }
  constexpr DecodingMode useMinP(bool on) { return set(kUseMinP, on); }
  constexpr DecodingMode useVariableBeamWidthSearch(bool on) { return set(kUseVariableBeamWidthSearch, on); }

  constexpr bool isAuto() const { return any(kAuto); }
  constexpr bool isTopK() const { return any(kTopK); }
  constexpr bool isTopP() const { return any(kTopP); }
  constexpr bool isTopKorTopP() const { return any(kTopKTopP); }
  constexpr bool isTopKandTopP() const { return (state_ & kTopKTopP) == kTopKTopP; }
  constexpr bool isBeamSearch() const { return any(kBeamSearch); }
  constexpr bool isMedusa() const { return any(kMedusa); }
  constexpr bool isLookahead() const { return any(kLookahead); }
  constexpr bool isExplicitDraftTokens() const { return any(kExplicitDraftTokens); }
  constexpr bool isExternalDraftTokens() const { return any(kExternalDraftTokens); }
  constexpr bool isEagle() const { return any(kEagle); }
  constexpr bool isUseTemperature() const { return any(kUseTemperature); }
  constexpr bool isUsePresencePenalty() const { return any(kUsePresencePenalties); }
  constexpr bool isUseFrequencyPenalty() const { return any(kUseFrequencyPenalties); }
  constexpr bool isUseRepetitionPenalty() const { return any(kUseRepetitionPenalties); }
  constexpr bool isUseMinLength() const { return any(kUseMinLength); }
  constexpr bool isUseOccurrencePenalty() const { return any(kUseOccurrencePenalties); }
  constexpr bool isUsePenalty() const { return any(kUsePenalties); }
  constexpr bool isUseBanWords() const { return any(kUseBanWords); }
  constexpr bool isUseNoRepeatNgramSize() const { return any(kUseNoRepeatNgramSize); }
  constexpr bool isUseBanTokens() const { return any(kUseBanTokens); }
  constexpr bool isUseStopWords() const { return any(kUseStopWords); }
  constexpr bool isUseMaxLengthStop() const { return any(kUseMaxLengthStop); }
  constexpr bool isUseExplicitEosStop() const { return any(kUseExplicitEosStop); }
  constexpr bool isUseStopCriteria() const { return any(kStops | kUseExplicitEosStop); }
  constexpr bool isUseMinP() const { return any(kUseMinP); }
  constexpr bool isUseVariableBeamWidthSearch() const { return any(kUseVariableBeamWidthSearch); }

  constexpr UnderlyingType getState() const { return state_; }
  constexpr const char* getName() const {
    if (isTopKorTopP()) return "TopKorTopP";
    if (isBeamSearch()) return "BeamSearch";
    if (isMedusa()) return "Medusa";
    if (isLookahead()) return "Lookahead";
    if (isExplicitDraftTokens()) return "ExplicitDraftTokens";
    if (isExternalDraftTokens()) return "ExternalDraftTokens";
    return isEagle() ? "Eagle" : "Unknown";
  }
  bool operator==(const DecodingMode&) const = default;

 private:
  enum : UnderlyingType {
    kUseRepetitionPenalties = 1U << 0,
    kUseFrequencyPenalties = 1U << 1,
    kUsePresencePenalties = 1U << 2,
    kUseTemperature = 1U << 3,
    kUseMinLength = 1U << 4,
    kUseBanWords = 1U << 5,
    kUseStopWords = 1U << 6,
    kUseMaxLengthStop = 1U << 7,
    kUseExplicitEosStop = 1U << 8,
    kUseNoRepeatNgramSize = 1U << 9,
    kUseMinP = 1U << 10,
    kUseVariableBeamWidthSearch = 1U << 11,
    kAuto = 1U << 12,
    kTopK = 1U << 13,
    kTopP = 1U << 14,
    kBeamSearch = 1U << 15,
    kMedusa = 1U << 16,
    kLookahead = 1U << 17,
    kExplicitDraftTokens = 1U << 18,
    kExternalDraftTokens = 1U << 19,
    kEagle = 1U << 20,
    kTopKTopP = kTopK | kTopP,
    kStops = kUseStopWords | kUseMaxLengthStop,
    kUseOccurrencePenalties = kUseRepetitionPenalties | kUseFrequencyPenalties | kUsePresencePenalties,
    kUsePenalties = kUseOccurrencePenalties | kUseTemperature | kUseMinLength,
    kUseBanTokens = kUseNoRepeatNgramSize | kUseBanWords,
    kSampling = kUsePenalties | kUseBanTokens | kStops
  };

  constexpr bool any(UnderlyingType bits) const { return (state_ & bits) != 0; }
  constexpr DecodingMode set(UnderlyingType bits, bool on) {
    state_ = on ? state_ | bits : state_ & ~bits;
    return *this;
  }

  UnderlyingType state_;
};

}  // namespace chorus::executor
