// Text to token ids and back, as a Hugging Face tokenizer.json with a byte pair or unigram model says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/work_meter.h"
#include "text/tokenizer/encode_limits.h"
#include "text/utf8_text.h"

namespace chorus {

class TokenDecoder;

// Immutable after loading; every const function may be called from any thread.
class Tokenizer {
 public:
  // Reads a directory's files (text/tokenizer/tokenizer_files.h): tokenizer.json, or a sentencepiece tokenizer.model.
  // Throws Error that names the file and the field; a component that is not supported is kUnsupported with its name,
  // never ignored.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& dir);
  // The same from parsed documents; config may be null.
  static std::shared_ptr<const Tokenizer> fromJson(const Json& tokenizer, const Json& config,
                                                   const std::string& source);
  ~Tokenizer();

  // Invalid UTF-8 is read as U+FFFD. Special tokens that occur in the text are always recognised;
  // add_special_tokens adds those around it (begin of text and the like).
  // Charges the meter for its work and throws what the meter throws; TooManyTokens beyond the limits; and
  // Error(kInvalidArgument) when the tokenizer's stages need too much memory: with the result's own growth it is at
  // most 16 bytes for each byte of text, where an invalid byte counts as the three of U+FFFD, and half a megabyte.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, WorkMeter& meter,
                              const EncodeLimits& limits = {}) const;
  // Without a limit: for text that is trusted.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // Valid UTF-8. Ids without a token give nothing. Throws Error when the decoder costs too much for these tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // One more than the largest id.
  int32_t vocabSize() const;
  std::optional<int32_t> tokenId(std::string_view token) const;
  // As the file spells it (byte-level tokens in their alphabet); empty for an id without a token.
  const std::string& tokenText(int32_t id) const;
  // What the decoder makes text of: tokenText, save for added tokens that are normalized. Null for an id without a
  // token; a token may be empty.
  const Utf8Text* decoderText(int32_t id) const;
  bool isSpecial(int32_t id) const;

  std::optional<int32_t> bosId() const { return specialId("bos_token"); }
  std::optional<int32_t> eosId() const { return specialId("eos_token"); }
  std::optional<int32_t> unkId() const { return specialId("unk_token"); }
  std::optional<int32_t> padId() const { return specialId("pad_token"); }
  // By their names in tokenizer_config.json ("bos_token", ...): what chat templates may print.
  const std::map<std::string, std::string>& specialTokens() const;

  // Texts of the chat templates by name; the only or usual one is "default". Empty when the model has none.
  const std::map<std::string, std::string>& chatTemplates() const;

  const TokenDecoder& decoder() const;

  // An estimate of the memory that the tokenizer holds, caches at their largest included.
  size_t memoryBytes() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::optional<int32_t> specialId(const char* name) const;

  std::unique_ptr<const State> state_;
};

}  // namespace chorus
