// The "decoder" of a tokenizer.json: tokens to text, as a chain of stages that work on a stream. Decoding a whole
// list and decoding token by token are the same code, so their texts can't differ.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace chorus {

// One stage at work. Takes tokens (or, after a stage that joins all tokens into one, stretches of that one token).
class DecoderStage {
 public:
  using Sink = std::function<void(std::string)>;
  virtual ~DecoderStage() = default;
  virtual void feed(std::string token, const Sink& sink) = 0;
  // The input has ended: gives what was held back.
  virtual void flush(const Sink& sink) { (void)sink; }
};

// Immutable description of a chain.
class Decoder {
 public:
  // json null gives the decoder that joins tokens with spaces. Throws Error(kUnsupported) that names source and a
  // component that is not known.
  Decoder(const Json& json, const std::string& source);

  std::vector<std::unique_ptr<DecoderStage>> start() const;

 private:
  using Factory = std::function<std::unique_ptr<DecoderStage>()>;
  void append(const Json& json, const std::string& source);

  std::vector<Factory> stages_;
  bool fused_ = false;  // while the chain is built: an earlier stage has joined all tokens
};

// A chain at work. Texts that it gives are valid UTF-8 and end at a character's end.
class DecodeStream {
 public:
  explicit DecodeStream(const Decoder& decoder) : stages_(decoder.start()) {}
  std::string feed(std::string_view token);
  std::string flush();

 private:
  void run(size_t stage, std::string token, std::string& out);
  std::vector<std::unique_ptr<DecoderStage>> stages_;
};

}  // namespace chorus
