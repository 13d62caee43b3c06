// The "decoder" of a tokenizer.json: tokens to text, as a chain of stages that work on a stream. Decoding a whole
// list and decoding token by token are the same code, so their texts can't differ.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

// One stage at work. Takes tokens (or, after a stage that joins all tokens into one, stretches of that one token).
class DecoderStage {
 public:
  using Sink = FunctionRef<void(Utf8Text)>;
  virtual ~DecoderStage() = default;
  virtual void feed(Utf8Text token, EncodeWork& work, Sink sink) = 0;
  // The input has ended: gives what was held back.
  virtual void flush(EncodeWork& work, Sink sink) { (void)work, (void)sink; }
};

// Immutable description of a chain.
class TokenDecoder {
 public:
  // json null gives the decoder that joins tokens with spaces. Throws Error(kUnsupported) that names source and a
  // component that is not known.
  TokenDecoder(const Json& json, const std::string& source);

  std::vector<std::unique_ptr<DecoderStage>> start() const;
  size_t memoryBytes() const { return bytes_; }

 private:
  using Factory = std::function<std::unique_ptr<DecoderStage>()>;
  void append(const Json& json, const std::string& source);

  std::vector<Factory> stages_;
  size_t bytes_ = 0;
  bool fused_ = false;  // while the chain is built: an earlier stage has joined all tokens
};

// A chain at work. Texts that it gives are valid UTF-8 and end at a character's end.
class DecodeStream {
 public:
  explicit DecodeStream(const TokenDecoder& decoder) : stages_(decoder.start()) {}
  // Throws Error when the decoder costs too much work or memory for the tokens seen so far.
  Utf8Text feed(Utf8View token);
  Utf8Text flush();

 private:
  void run(size_t stage, Utf8Text token, EncodeWork& work, Utf8Text& out);
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  size_t fed_ = 0;  // bytes of all tokens
};

}  // namespace chorus
