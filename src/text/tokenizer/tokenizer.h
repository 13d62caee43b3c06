// Converts text to token ids and back, as defined by a Hugging Face tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
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

// Limit on the chat templates of one tokenizer, in either of the places that hold several.
inline constexpr size_t kMaxChatTemplates = 64;

// Immutable after loading; every const function may be called from any thread.
class Tokenizer {
 public:
  // Reads the files of a directory (text/tokenizer/tokenizer_files.h). Throws Error that names the file and the field.
  // A component that is not supported is never ignored: it throws kUnsupported with its name.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& dir);
  // Like load(), from parsed documents; config may be null. most_tokens: limit on vocabSize(), beyond which it throws
  // kUnsupported. Charges the meter for work that is more than a pass over the documents, and throws what it throws.
  static std::shared_ptr<const Tokenizer> fromJson(const Json& tokenizer, const Json& config, const std::string& source,
                                                   WorkMeter& meter,
                                                   int32_t most_tokens = std::numeric_limits<int32_t>::max());
  // Overload without limits, for trusted documents only.
  static std::shared_ptr<const Tokenizer> fromJson(const Json& tokenizer, const Json& config,
                                                   const std::string& source);
  ~Tokenizer();

  // Invalid UTF-8 is read as U+FFFD. Special tokens that occur in the text are recognised unless the config has
  // split_special_tokens; add_special_tokens adds the special tokens around the text (begin of text and the like).
  // Charges its work to the meter and throws what the meter throws; throws TooManyTokens beyond the limits, and
  // Error(kInvalidArgument) if the tokenizer's stages need too much memory. Including the result's own growth, memory
  // is at most half a megabyte and 16 bytes for each byte of text, where an invalid byte counts as the three bytes of
  // U+FFFD.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, WorkMeter& meter,
                              const EncodeLimits& limits = {}) const;
  // Overload without limits, for trusted text only.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // Returns valid UTF-8. Ids without a token are skipped. Throws Error if the decoder costs too much for these tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The largest id plus one.
  int32_t vocabSize() const;
  std::optional<int32_t> tokenId(std::string_view token) const;
  // The text of the token in the file (byte-level tokens in their alphabet); empty for an id without a token.
  const std::string& tokenText(int32_t id) const;
  // The text that the decoder receives: tokenText, except for normalized added tokens. Null for an id without a token;
  // a token's text may be empty.
  const Utf8Text* decoderText(int32_t id) const;
  // Whether decode() skips the token as special. As in the library, that depends on decoderText(): a token that a
  // normalizer changes is not skipped.
  bool isSpecial(int32_t id) const;

  std::optional<int32_t> bosId() const { return specialId("bos_token"); }
  std::optional<int32_t> eosId() const { return specialId("eos_token"); }
  std::optional<int32_t> unkId() const { return specialId("unk_token"); }
  std::optional<int32_t> padId() const { return specialId("pad_token"); }
  // Special tokens by their names in tokenizer_config.json ("bos_token", ...), for chat templates.
  const std::map<std::string, std::string>& specialTokens() const;

  // Texts of the chat templates by name; the only or main one is named "default". Empty if the model has none.
  const std::map<std::string, std::string>& chatTemplates() const;

  const TokenDecoder& decoder() const;

  // Estimated memory of the tokenizer in bytes, including full caches.
  size_t memoryBytes() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::optional<int32_t> specialId(const char* name) const;

  std::unique_ptr<const State> state_;
};

}  // namespace chorus
