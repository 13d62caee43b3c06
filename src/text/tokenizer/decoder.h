// The "decoder" of a tokenizer.json: a chain of stages that turns a stream of tokens into text. Decoding a whole list
// and decoding token by token run the same code, so their texts can't differ.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "base/work_meter.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

// State of one stage. Each input is a token or, after a stage that joins all tokens into one, a fragment of that token.
class DecoderStage {
 public:
  using Sink = FunctionRef<void(Utf8Text)>;
  virtual ~DecoderStage() = default;
  virtual void feed(Utf8Text token, EncodeWork& work, Sink sink) = 0;
  // Called at the end of the input: emits the text that was held back.
  virtual void flush(EncodeWork& work, Sink sink) { (void)work, (void)sink; }
};

// Immutable description of a chain.
class TokenDecoder {
 public:
  // A null json gives a decoder that joins tokens with spaces. Throws Error(kUnsupported), naming source and component,
  // for an unknown component. meter: charged with the compilation of regular expressions.
  TokenDecoder(const Json& json, const std::string& source, WorkMeter& meter);

  std::vector<std::unique_ptr<DecoderStage>> start() const;
  size_t memoryBytes() const { return bytes_; }

 private:
  using Factory = std::function<std::unique_ptr<DecoderStage>()>;
  void append(const Json& json, const std::string& source, WorkMeter& meter);

  std::vector<Factory> stages_;
  size_t bytes_ = 0;
  bool fused_ = false;  // used while the chain is built: a stage has joined all tokens into one
};

// Decodes one sequence with a chain of decoders. Its texts are valid UTF-8 and contain whole characters only.
class DecodeStream {
 public:
  // meter: charged with the work of every call, after it; must outlive the stream. Null: only each call is limited.
  explicit DecodeStream(const TokenDecoder& decoder, WorkMeter* meter = nullptr)
      : stages_(decoder.start()), meter_(meter) {}
  // Throw Error(kInvalidArgument) if more than four times the bytes of the tokens would be returned (64 bytes for a
  // short token, 1 MiB at once), if more than 256 KiB are held back, or if the token costs too much work; and what the
  // meter throws.
  Utf8Text feed(Utf8View token);
  Utf8Text flush();

 private:
  void run(size_t stage, Utf8Text token, EncodeWork& work, Utf8Text& out);
  void charge(uint64_t work) const {
    if (meter_ != nullptr) meter_->charge(work);
  }
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  WorkMeter* meter_;
  size_t fed_ = 0;          // total bytes of the tokens fed
  size_t unreturned_ = 0;   // bytes of the tokens fed after the last one that returned text; see kDecodeWork
  size_t returnable_ = 64;  // bytes that may still be returned; see kGrowth
};

}  // namespace chorus
