// What comes back: Response, holding a Result or an error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chorus/request_config.h"
#include "chorus/statistics.h"
#include "chorus/tensor.h"
#include "chorus/types.h"

namespace chorus::executor {

// Never set: nothing is drafted.
struct SpeculativeDecodingFastLogitsInfo {
  std::uint64_t draftRequestId = 0;
  std::int32_t draftParticipantId = 0;
  // Its bytes in a CPU tensor [1, 4] float32, as ExternalDraftTokensConfig takes it in place of logits.
  [[nodiscard]] Tensor toTensor() const;
};

// A tensor of the network by name; none is given.
struct AdditionalOutput {
  AdditionalOutput(std::string nameIn, Tensor outputIn) : name(std::move(nameIn)), output(std::move(outputIn)) {}
  std::string name;
  Tensor output;
};

struct Result {
  bool isFinal = false;  // of the request: with numReturnSequences, of the last of its sequences to end
  // Streaming: the new tokens only, unless returnAllGeneratedTokens. Otherwise prompt and generated tokens, or the
  // generated alone with excludeInputFromOutput. The end token is included when it was produced; stop words are kept.
  BeamTokens outputTokenIds;
  std::optional<VecLogProbs> cumLogProbs;            // [beams]
  std::optional<std::vector<VecLogProbs>> logProbs;  // [beams][generated]
  std::optional<Tensor> contextLogits;               // [prompt, vocab] float32
  // Of the tokens in outputTokenIds: [beams, generated, vocab] float32, streaming [generated, beams, vocab].
  std::optional<Tensor> generationLogits;
  std::optional<SpeculativeDecodingFastLogitsInfo> specDecFastLogitsInfo;
  std::optional<Tensor> encoderOutput;
  std::vector<FinishReason> finishReasons;  // [beams]
  std::optional<ContextPhaseParams> contextPhaseParams;
  SizeType32 decodingIter = 0;   // steps this request took part in
  SizeType32 sequenceIndex = 0;  // of numReturnSequences without beams
  bool isSequenceFinal = false;
  std::optional<RequestPerfMetrics> requestPerfMetrics;
  std::vector<AdditionalOutput> additionalOutputs;
  // Chorus: the likeliest tokens of each generated one's row, by (log probability descending, id ascending);
  // [beams][generated][min(topLogProbs, vocab)].
  std::optional<std::vector<std::vector<std::vector<TokenLogProb>>>> topLogProbs;
  // Chorus: once, with the first response that has a token: of the prompt's tokens from the second on.
  std::optional<VecLogProbs> promptLogProbs;                                // [prompt - 1]
  std::optional<std::vector<std::vector<TokenLogProb>>> promptTopLogProbs;  // [prompt - 1][min(topLogProbs, vocab)]
  SizeType32 cachedTokens = 0;  // Chorus: of the prompt, not computed but found in the cache
  // Chorus: SHA-256 of the adapter's content that it runs with, of a composition that of all its terms; empty without
  // an adapter, and where it ended before the adapter was there.
  std::string adapterContentHash;
};

class Response {
 public:
  Response(IdType requestId, std::string errorMsg, std::optional<IdType> clientId = std::nullopt,
           ResponseErrorCode errorCode = ResponseErrorCode::kINTERNAL)
      : requestId_(requestId), clientId_(clientId), error_(std::move(errorMsg)), errorCode_(errorCode) {}
  Response(IdType requestId, Result result, std::optional<IdType> clientId = std::nullopt)
      : requestId_(requestId), clientId_(clientId), result_(std::move(result)) {}

  IdType getRequestId() const { return requestId_; }
  std::optional<IdType> getClientId() const { return clientId_; }
  bool hasError() const { return error_.has_value(); }
  const std::string& getErrorMsg() const;  // throws std::logic_error without an error
  ResponseErrorCode getErrorCode() const;  // Chorus: throws std::logic_error without an error
  const Result& getResult() const;         // throws std::logic_error with an error

 private:
  IdType requestId_;
  std::optional<IdType> clientId_;
  std::optional<std::string> error_;
  ResponseErrorCode errorCode_ = ResponseErrorCode::kINTERNAL;
  std::optional<Result> result_;
};

}  // namespace chorus::executor
