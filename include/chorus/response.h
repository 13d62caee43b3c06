// The answer to a request: a Response holds a Result or an error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chorus/request_config.h"
#include "chorus/statistics.h"
#include "chorus/tensor.h"
#include "chorus/types.h"

namespace chorus::executor {

// Never set: this build does not draft tokens.
struct SpeculativeDecodingFastLogitsInfo {
  std::uint64_t draftRequestId = 0;
  std::int32_t draftParticipantId = 0;
  // The bytes in a CPU tensor [1, 4] float32, which ExternalDraftTokensConfig takes in place of logits.
  [[nodiscard]] Tensor toTensor() const;
};

// A tensor of the network by name; this build returns none.
struct AdditionalOutput {
  AdditionalOutput(std::string nameIn, Tensor outputIn) : name(std::move(nameIn)), output(std::move(outputIn)) {}
  std::string name;
  Tensor output;
};

struct Result {
  bool isFinal = false;  // the request's last response; with numReturnSequences, of the sequence that ends last
  // Streaming: only the new tokens, unless returnAllGeneratedTokens is set. Otherwise prompt and generated tokens, or
  // with excludeInputFromOutput only the generated ones. A generated end token and generated stop words are included.
  BeamTokens outputTokenIds;
  std::optional<VecLogProbs> cumLogProbs;            // [beams]
  std::optional<std::vector<VecLogProbs>> logProbs;  // [beams][generated]
  std::optional<Tensor> contextLogits;               // [prompt, vocab] float32
  // Logits of the tokens in outputTokenIds: [beams, generated, vocab] float32; streaming: [generated, beams, vocab].
  std::optional<Tensor> generationLogits;
  std::optional<SpeculativeDecodingFastLogitsInfo> specDecFastLogitsInfo;
  std::optional<Tensor> encoderOutput;
  std::vector<FinishReason> finishReasons;  // [beams]
  std::optional<ContextPhaseParams> contextPhaseParams;
  SizeType32 decodingIter = 0;   // number of steps that this request took part in
  SizeType32 sequenceIndex = 0;  // index of the sequence with numReturnSequences and no beams
  bool isSequenceFinal = false;
  std::optional<RequestPerfMetrics> requestPerfMetrics;
  std::vector<AdditionalOutput> additionalOutputs;
  // Chorus: the likeliest tokens at each generated token's position, by (log probability descending, id ascending):
  // [beams][generated][min(topLogProbs, vocab)].
  std::optional<std::vector<std::vector<std::vector<TokenLogProb>>>> topLogProbs;
  // Chorus: for the prompt's tokens from the second on. Sent once, with the first response that has a token.
  std::optional<VecLogProbs> promptLogProbs;                                // [prompt - 1]
  std::optional<std::vector<std::vector<TokenLogProb>>> promptTopLogProbs;  // [prompt - 1][min(topLogProbs, vocab)]
  SizeType32 cachedTokens = 0;  // Chorus: prompt tokens that were found in the cache and not computed
  // Chorus: SHA-256 of the content of the request's adapter; for a composition, of all its terms. Empty without an
  // adapter, and if the request ended before its adapter was loaded.
  std::string adapterContentHash;
};

// Chorus: the adapter because of which a request failed.
struct AdapterFault {
  IdType taskId = 0;
  std::string reason;    // the error's text without the adapter, one line
  bool loading = false;  // its files or tensors could not be loaded; else it cannot be used in the way that was asked
};

// Copies share the result.
class Response {
 public:
  Response(IdType requestId, std::string errorMsg, std::optional<IdType> clientId = std::nullopt,
           ResponseErrorCode errorCode = ResponseErrorCode::kINTERNAL,
           std::optional<AdapterFault> adapterFault = std::nullopt)
      : requestId_(requestId),
        clientId_(clientId),
        error_(std::move(errorMsg)),
        errorCode_(errorCode),
        adapterFault_(std::move(adapterFault)) {}
  Response(IdType requestId, Result result, std::optional<IdType> clientId = std::nullopt)
      : Response(requestId, std::make_shared<const Result>(std::move(result)), clientId) {}
  // Chorus: with a result that is shared already; not null.
  Response(IdType requestId, std::shared_ptr<const Result> result, std::optional<IdType> clientId = std::nullopt)
      : requestId_(requestId), clientId_(clientId), result_(std::move(result)) {}

  IdType getRequestId() const { return requestId_; }
  std::optional<IdType> getClientId() const { return clientId_; }
  bool hasError() const { return error_.has_value(); }
  const std::string& getErrorMsg() const;  // throws std::logic_error without an error
  ResponseErrorCode getErrorCode() const;  // Chorus: throws std::logic_error without an error
  // Chorus: nullopt if the error is not about one adapter, and without an error.
  const std::optional<AdapterFault>& getAdapterFault() const { return adapterFault_; }
  const Result& getResult() const;  // throws std::logic_error with an error

 private:
  IdType requestId_;
  std::optional<IdType> clientId_;
  std::optional<std::string> error_;
  ResponseErrorCode errorCode_ = ResponseErrorCode::kINTERNAL;
  std::optional<AdapterFault> adapterFault_;
  std::shared_ptr<const Result> result_;
};

}  // namespace chorus::executor
