#include "text/tokenizer/word_decoders.h"

#include <cstring>
#include <optional>

#include "base/error.h"
#include "text/tokenizer/text_pattern.h"
#include "text/tokenizer/utf8_json.h"

namespace chorus {
namespace {

// Replacements that remove the spaces of a detokenized English text, in this order. None makes a text longer.
constexpr std::pair<std::string_view, std::string_view> kCleanup[] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

// to: not longer than from.
void replaceAll(std::string& text, std::string_view from, std::string_view to) {
  size_t kept = 0, done = 0;
  // The moved bytes may overlap their new place.
  const auto keepUntil = [&](size_t end) {
    std::memmove(text.data() + kept, text.data() + done, end - done);
    kept += end - done;
  };
  for (size_t at = 0; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    keepUntil(at);
    kept += to.copy(text.data() + kept, to.size());
  }
  keepUntil(text.size());
  text.resize(kept);
}

Utf8Text cleanUp(Utf8Text token, EncodeWork& work) {
  // Every entry of kCleanup begins with a space, so a token without one stays as it is.
  if (token.bytes().find(' ') == std::string::npos) return token;
  std::string text = std::move(token).take();
  for (const auto& [from, to] : kCleanup) {
    work.meter.charge(2 * text.size());
    replaceAll(text, from, to);
  }
  return *Utf8Text::check(std::move(text));
}

// A literal to replace in every token. Null for an empty literal, which is found nowhere.
using Literal = std::shared_ptr<const TextPattern>;

Literal readLiteral(const Json& json, const char* key, const std::string& source, size_t& bytes) {
  Utf8Text text = jsonGetText(json, key, source);
  if (text.empty()) return nullptr;
  auto literal = std::make_shared<const TextPattern>(TextPattern::fromLiteral(std::move(text), source));
  bytes += literal->memoryBytes();
  return literal;
}

// Rust's replacement of an empty text inserts between all characters, which no decoder means.
Literal readFilledLiteral(const Json& json, const char* key, const std::string& source, size_t& bytes) {
  Literal literal = readLiteral(json, key, source, bytes);
  if (literal == nullptr) fail(ErrorCode::kUnsupported, "{}: an empty '{}' is not supported", source, key);
  return literal;
}

Utf8Text replaced(const Utf8Text& text, const TextPattern& literal, std::string_view content, EncodeWork& work) {
  ScratchText out(work);
  literal.replaceAll(text, *Utf8View::check(content), work, out);
  return Utf8Text(out.view());
}

// A token without the prefix begins a new word, so it gets a space, except for the first one.
class WordPieceStage final : public DecoderStage {
 public:
  WordPieceStage(std::shared_ptr<const Utf8Text> prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void feed(Utf8Text token, EncodeWork& work, Sink sink) override {
    work.meter.charge(token.size());
    Utf8Text text;
    const bool continues = token.bytes().starts_with(prefix_->bytes());
    if (!first_ && !continues) text.append(' ');
    text.append(!first_ && continues ? token.view().from(prefix_->size()) : token.view());
    first_ = false;
    sink(cleanup_ ? cleanUp(std::move(text), work) : std::move(text));
  }

 private:
  std::shared_ptr<const Utf8Text> prefix_;
  bool cleanup_;
  bool first_ = true;
};

// Connectionist temporal classification: equal neighbours are one token, padding vanishes, a delimiter is a space.
class CtcStage final : public DecoderStage {
 public:
  CtcStage(Literal padding, Literal delimiter, bool cleanup)
      : padding_(std::move(padding)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void feed(Utf8Text token, EncodeWork& work, Sink sink) override {
    work.meter.charge(token.size());
    if (previous_ && previous_->bytes() == token.bytes()) return;
    previous_ = token;
    if (padding_) token = replaced(token, *padding_, "", work);
    if (cleanup_) token = replaced(cleanUp(std::move(token), work), *delimiter_, " ", work);
    if (!token.empty()) sink(std::move(token));
  }

 private:
  Literal padding_, delimiter_;
  bool cleanup_;
  std::optional<Utf8Text> previous_;
};

// The suffix of a word becomes a space, except in the last token; so each token waits for the next one.
class SuffixStage final : public DecoderStage {
 public:
  explicit SuffixStage(Literal suffix) : suffix_(std::move(suffix)) {}
  void feed(Utf8Text token, EncodeWork& work, Sink sink) override {
    if (pending_) sink(replaced(*pending_, *suffix_, " ", work));
    pending_ = std::move(token);
  }
  void flush(EncodeWork& work, Sink sink) override {
    if (pending_) sink(replaced(*pending_, *suffix_, "", work));
    pending_.reset();
  }

 private:
  Literal suffix_;
  std::optional<Utf8Text> pending_;
};

}  // namespace

DecoderFactory makeWordDecoder(const std::string& type, const Json& json, const std::string& source, size_t& bytes) {
  if (type == "WordPiece") {
    auto prefix = std::make_shared<const Utf8Text>(jsonGetText(json, "prefix", source));
    bytes += prefix->size();
    const bool cleanup = jsonGet<bool>(json, "cleanup", source);
    return [=] { return std::make_unique<WordPieceStage>(prefix, cleanup); };
  }
  if (type == "CTC") {
    const bool cleanup = jsonGet<bool>(json, "cleanup", source);
    const Literal padding = readLiteral(json, "pad_token", source, bytes);
    const Literal delimiter = cleanup ? readFilledLiteral(json, "word_delimiter_token", source, bytes) : nullptr;
    return [=] { return std::make_unique<CtcStage>(padding, delimiter, cleanup); };
  }
  if (type == "BPEDecoder") {
    const Literal suffix = readFilledLiteral(json, "suffix", source, bytes);
    return [=] { return std::make_unique<SuffixStage>(suffix); };
  }
  return nullptr;
}

}  // namespace chorus
