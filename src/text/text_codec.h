// The tokenizer, the chat templates and the detokenizer of one model directory, behind one interface.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/work_meter.h"
#include "text/stop_matcher.h"
#include "text/tokenizer/encode_limits.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus {

struct TextStreamOptions {
  std::shared_ptr<const StopStrings> stops;  // null: none; the earliest match in the text wins
  bool include_stop = false;                 // the text includes the stop string that ends it
  bool skip_special_tokens = true;           // special tokens have no text
  int32_t stops_from = 0;                    // stop strings are not matched in this many first tokens
  WorkMeter* meter = nullptr;                // charged with the decoder's work; must outlive the stream. Null: none
  std::span<const int32_t> before;           // tokens whose text the sequence continues, read at once
};

// Text of one growing token sequence. Not thread-safe.
class TextStream {
 public:
  struct Piece {
    std::string text;                       // new text that can no longer be part of a stop string
    std::optional<std::string> stopped_by;  // set when a stop string is complete: the text after it is left out
  };

  virtual ~TextStream() = default;
  // The bytes of an incomplete character are kept for the next call. Must not be called after a stop.
  virtual Piece push(int32_t token) = 0;
  // Returns the text that was held back, with U+FFFD for an incomplete character. It may complete a stop string.
  virtual Piece finish() = 0;
};

// Options of a request for the chat template, in addition to its messages.
struct ChatRendering {
  OrderedJson documents;  // null: none
  OrderedJson variables = OrderedJson::object();
  std::optional<std::string> chat_template;  // the name of one of the model's templates, or the text of another
  bool add_generation_prompt = true;         // the prompt ends where the assistant's answer begins
  bool continue_final_message = false;       // the prompt ends inside the last message, which the answer continues
};

// Immutable; every method may be called from several threads at once.
class TextCodec {
 public:
  virtual ~TextCodec() = default;
  // encode and renderChat charge the meter for their work and throw what it throws. encode throws TooManyTokens if the
  // text has more tokens than the limits allow, before it reads the rest of the text.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, WorkMeter& meter,
                                      const EncodeLimits& limits = {}) const = 0;
  // Overload without a limit, for trusted text only.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const {
    WorkMeter meter;
    return encode(text, add_special_tokens, meter);
  }
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens) const = 0;
  // The bytes that a token adds to a text, which may be a part of a character. For a special token, its name.
  virtual std::string tokenBytes(int32_t token) const = 0;
  // The token as the tokenizer's files spell it, for example "\u0120the"; empty for an id without a token.
  virtual std::string tokenText(int32_t token) const = 0;
  virtual std::unique_ptr<TextStream> newStream(const TextStreamOptions& options) const = 0;
  virtual int32_t vocabSize() const = 0;
  // An estimate of the memory that tokenizer and templates hold.
  virtual size_t memoryBytes() const { return 0; }
  // The tokenizer's own end token.
  virtual std::optional<int32_t> eosTokenId() const = 0;
  virtual bool hasChatTemplate() const = 0;
  // Whether one of the model's templates has that name.
  virtual bool hasChatTemplate(const std::string& name) const = 0;
  // Whether the template that renderChat() uses names the role "developer". Many templates refuse roles that they do
  // not name, or leave their messages out.
  virtual bool knowsDeveloper(const ChatRendering& /*how*/) const { return false; }
  // Renders the prompt for the messages. Throws Error if the template refuses them.
  virtual std::string renderChat(const OrderedJson& messages, const ChatRendering& how, WorkMeter& meter) const = 0;
};

// Loads tokenizer and templates of a trusted Hugging Face directory. Throws Error.
std::shared_ptr<const TextCodec> loadTextCodec(const std::filesystem::path& directory);
// Does the same with files that are already read and need not be trusted. fallback: see parseTokenizerFiles.
// most_tokens: see Tokenizer::fromJson. Charges the meter for work that is more than a few passes over the files.
// Throws Error, and what the meter throws.
std::shared_ptr<const TextCodec> parseTextCodec(const TokenizerFileSet& files, const TokenizerFileSet* fallback,
                                                WorkMeter& meter,
                                                int32_t most_tokens = std::numeric_limits<int32_t>::max());

}  // namespace chorus
