#include "text/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/text_pattern.h"
#include "text/tokenizer/utf8_json.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_decoders.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// Stages call each other recursively, so their number bounds the stack.
constexpr size_t kMaxDecoders = 32;
// Work limit of one call: kDecodeWork plus kDecodeWorkPerByte for each byte of the token and of earlier tokens whose
// text may be held back. One call is not interrupted, and other sequences wait for it: a token takes at most a third of
// a millisecond. An end, or a token that releases held-back text, takes at most 17.
constexpr uint64_t kDecodeWork = uint64_t{1} << 16;
constexpr uint64_t kDecodeWorkPerByte = 64;
// Bytes of a token that raise its limit. Only an added token that a normalizer has changed can be longer.
constexpr size_t kMostCounted = Vocabulary::kMaxTokenBytes;
// Work of passing a text to a stage: for the call, and for each byte in the slowest stage without costs of its own.
constexpr uint64_t kStageWork = WorkMeter::kObject;
constexpr uint64_t kStageWorkPerByte = 8;
// Bytes that a stage may hold back until the end of the text.
constexpr size_t kMostHeldBack = size_t{256} << 10;
// Bytes that may be returned: kGrowth for each byte of a token, and kMostFree for a token of few bytes. A byte may
// become a replacement character of 3 bytes. What is made of a text later (JSON, log probabilities) takes several times
// its bytes, without a pause, so a decoder must not turn a few tokens into megabytes. One call returns at most
// kMostReturned.
constexpr size_t kGrowth = 4;
constexpr size_t kMostFree = 64;
constexpr size_t kMostReturned = kGrowth * kMostHeldBack;

void chargeStage(EncodeWork& work, size_t bytes) { work.meter.charge(kStageWork + kStageWorkPerByte * bytes); }

void requireHeldBack(uint64_t bytes) {
  if (bytes <= kMostHeldBack) return;
  fail(ErrorCode::kInvalidArgument, "the tokenizer's decoder holds back more than {} KiB of text", kMostHeldBack >> 10);
}

// Turns tokens of the byte-level alphabet into bytes, and the bytes into UTF-8.
class ByteLevelDecoder final : public DecoderStage {
 public:
  void feed(Utf8Text token, EncodeWork&, Sink sink) override {
    appendByteLevelToken(pending_, token);
    // Number of bytes before an incomplete character at the end.
    size_t whole = pending_.size() - std::min<size_t>(pending_.size(), 3);
    while (whole < pending_.size() && decodeUtf8(std::string_view(pending_).substr(whole)).kind != Kind::kIncomplete) {
      ++whole;
    }
    Utf8Text out = Utf8Text::replacingInvalid(std::string_view(pending_).substr(0, whole));
    pending_.erase(0, whole);
    if (!out.empty()) sink(std::move(out));
  }
  void flush(EncodeWork&, Sink sink) override {
    if (!pending_.empty()) sink(Utf8Text::replacingInvalid(pending_));
    pending_.clear();
  }

 private:
  using Kind = Utf8Step::Kind;
  std::string pending_;  // bytes of an incomplete character
};

// Turns runs of <0xNN> tokens into UTF-8. Whether a run is valid is known only at its end, so it is held back until
// then.
class ByteFallbackStage final : public DecoderStage {
 public:
  void feed(Utf8Text token, EncodeWork& work, Sink sink) override {
    if (const auto byte = byteOfFallbackToken(token.bytes())) {
      requireHeldBack(bytes_.size() + 1);
      bytes_.push_back(static_cast<char>(*byte));
      return;
    }
    flush(work, sink);
    sink(std::move(token));
  }
  void flush(EncodeWork&, Sink sink) override {
    if (bytes_.empty()) return;
    const std::string bytes = std::exchange(bytes_, {});
    if (const auto valid = Utf8View::check(bytes)) return sink(Utf8Text(*valid));
    // Each byte is a token of its own for the stages behind this one.
    for (size_t i = 0; i < bytes.size(); ++i) {
      Utf8Text replacement;
      replacement.append(0xFFFD);
      sink(std::move(replacement));
    }
  }

 private:
  std::string bytes_;
};

class ReplaceStage final : public DecoderStage {
 public:
  ReplaceStage(std::shared_ptr<const TextPattern> pattern, std::shared_ptr<const Utf8Text> content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void feed(Utf8Text token, EncodeWork& work, Sink sink) override {
    ScratchText out(work);
    pattern_->replaceAll(token, *content_, work, out);
    sink(Utf8Text(out.view()));
  }

 private:
  std::shared_ptr<const TextPattern> pattern_;
  std::shared_ptr<const Utf8Text> content_;
};

class MetaspaceStage final : public DecoderStage {
 public:
  MetaspaceStage(Utf8Text replacement, bool drop_first, bool fused)
      : replacement_(std::move(replacement)), drop_(drop_first), fused_(fused) {}
  void feed(Utf8Text token, EncodeWork&, Sink sink) override {
    const Utf8View view = token;
    Utf8Text out;
    for (size_t at = 0; at < view.size();) {
      const size_t mark = std::min(view.bytes().find(replacement_.bytes(), at), view.size());
      out.append(view.sub(at, mark));
      at = mark;
      if (at == view.size()) break;
      if (!drop_) out.append(' ');
      at += replacement_.size();
    }
    if (!fused_) drop_ = false;
    sink(std::move(out));
  }

 private:
  Utf8Text replacement_;  // one character
  bool drop_;             // drop replacement characters instead of writing spaces: true in the first token
  bool fused_;
};

// Strips content_ up to start_ times from the front and up to stop_ times from the back of every token.
class StripStage final : public DecoderStage {
 public:
  StripStage(Utf8Text content, uint64_t start, uint64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void feed(Utf8Text token, EncodeWork&, Sink sink) override {
    Utf8View text = token;
    for (uint64_t i = 0; i < start_ && text.bytes().starts_with(content_.bytes()); ++i) {
      text = text.from(content_.size());
    }
    for (uint64_t i = 0; i < stop_ && text.bytes().ends_with(content_.bytes()); ++i) {
      text = text.sub(0, text.size() - content_.size());
    }
    sink(Utf8Text(text));
  }

 private:
  Utf8Text content_;  // one character
  uint64_t start_, stop_;
};

// StripStage for one token that arrives in fragments: counts down start_, and holds back what may be the token's end.
class FusedStripStage final : public DecoderStage {
 public:
  FusedStripStage(Utf8Text content, uint64_t start, uint64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void feed(Utf8Text token, EncodeWork& work, Sink sink) override {
    Utf8View text = token;
    const auto begins = [&] { return text.bytes().starts_with(content_.bytes()); };
    for (; start_ > 0 && !text.empty(); --start_) {
      if (!begins()) {
        start_ = 0;
        break;
      }
      text = text.from(content_.size());
    }
    size_t end = text.size();
    uint64_t trailing = 0;
    for (; end > 0 && text.bytes().substr(0, end).ends_with(content_.bytes()); ++trailing) end -= content_.size();
    // The copies of content_ that were held back are not at the end of the token, because other text follows: emit
    // them.
    Utf8Text out;
    if (end > 0) {
      give(held_, work, out);
      held_ = 0;
      out.append(text.sub(0, end));
    }
    held_ += trailing;
    if (held_ > stop_) {
      give(held_ - stop_, work, out);
      held_ = stop_;
    }
    requireHeldBack(held_ * content_.size());
    if (!out.empty()) sink(std::move(out));
  }

 private:
  void give(uint64_t count, EncodeWork& work, Utf8Text& out) const {
    work.meter.charge(count * content_.size());
    for (uint64_t i = 0; i < count; ++i) out.append(content_);
  }

  Utf8Text content_;  // one character
  uint64_t start_, stop_;
  uint64_t held_ = 0;  // copies of content_ held back, at most stop_
};

// Decoder for a null json: joins tokens with spaces.
class JoinStage final : public DecoderStage {
 public:
  void feed(Utf8Text token, EncodeWork&, Sink sink) override {
    Utf8Text out;
    if (!first_) out.append(' ');
    first_ = false;
    out.append(token);
    sink(std::move(out));
  }

 private:
  bool first_ = true;
};

// Collects a token that arrives in fragments, and runs a stage that needs the whole token at the token's end.
class WholeTokenStage final : public DecoderStage {
 public:
  explicit WholeTokenStage(std::unique_ptr<DecoderStage> stage) : stage_(std::move(stage)) {}
  void feed(Utf8Text token, EncodeWork&, Sink) override {
    requireHeldBack(text_.size() + token.size());
    text_.append(token);
  }
  void flush(EncodeWork& work, Sink sink) override {
    chargeStage(work, text_.size());
    stage_->feed(std::move(text_), work, sink);
    stage_->flush(work, sink);
    text_ = {};
  }

 private:
  std::unique_ptr<DecoderStage> stage_;
  Utf8Text text_;
};

Utf8Text oneCharacter(const Json& json, const char* key, const std::string& source) {
  auto text = jsonGetText(json, key, source);
  if (countCharacters(text.bytes()) != 1)
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be one character", source, key);
  return text;
}
}  // namespace

TokenDecoder::TokenDecoder(const Json& json, const std::string& source, WorkMeter& meter) {
  if (json.is_null())
    stages_.push_back([] { return std::make_unique<JoinStage>(); });
  else
    append(json, source, meter);
}

void TokenDecoder::append(const Json& json, const std::string& source, WorkMeter& meter) {
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (stages_.size() >= kMaxDecoders) {
    fail(ErrorCode::kUnsupported, "{}: more than {} decoders in a row", source, kMaxDecoders);
  }
  const auto add = [&](Factory make) {
    if (!fused_) return stages_.push_back(std::move(make));
    stages_.push_back([make = std::move(make)] { return std::make_unique<WholeTokenStage>(make()); });
  };
  if (type == "Sequence") {
    const auto list = json.find("decoders");
    if (list == json.end() || !list->is_array()) {
      fail(ErrorCode::kInvalidArgument, "{}: 'decoders' must be a list", here);
    }
    for (const Json& part : *list) append(part, here, meter);
  } else if (type == "ByteLevel") {
    add([] { return std::make_unique<ByteLevelDecoder>(); });
    fused_ = true;
  } else if (type == "ByteFallback") {
    add([] { return std::make_unique<ByteFallbackStage>(); });
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Replace") {
    auto pattern = std::make_shared<const TextPattern>(TextPattern::fromMember(json, here, meter));
    pattern->refuseEmptyMatches(here);
    auto content = std::make_shared<const Utf8Text>(jsonGetText(json, "content", here));
    bytes_ += pattern->memoryBytes() + content->size();
    add([pattern, content] { return std::make_unique<ReplaceStage>(pattern, content); });
  } else if (type == "Strip") {
    const auto start = jsonGet<uint64_t>(json, "start", here), stop = jsonGet<uint64_t>(json, "stop", here);
    const auto content = oneCharacter(json, "content", here);
    if (fused_)
      stages_.push_back([=] { return std::make_unique<FusedStripStage>(content, start, stop); });
    else
      stages_.push_back([=] { return std::make_unique<StripStage>(content, start, stop); });
  } else if (type == "Metaspace") {
    const bool legacy = jsonGetOr<bool>(json, "add_prefix_space", true, here);
    const auto scheme = jsonGetOr<std::string>(json, "prepend_scheme", legacy ? "always" : "never", here);
    stages_.push_back([replacement = oneCharacter(json, "replacement", here), drop = scheme != "never",
                       fused = fused_] { return std::make_unique<MetaspaceStage>(replacement, drop, fused); });
  } else if (DecoderFactory make = makeWordDecoder(type, json, here, bytes_)) {
    add(std::move(make));
  } else {
    fail(ErrorCode::kUnsupported, "{}: the decoder '{}' is not supported", source, printable(type));
  }
}

std::vector<std::unique_ptr<DecoderStage>> TokenDecoder::start() const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  stages.reserve(stages_.size());
  for (const Factory& make : stages_) stages.push_back(make());
  return stages;
}

void DecodeStream::run(size_t stage, Utf8Text token, EncodeWork& work, Utf8Text& out) {
  if (stage == stages_.size()) {
    work.meter.charge(token.size());
    if (token.size() > returnable_) {
      fail(ErrorCode::kInvalidArgument,
           "the tokenizer's decoder returns too much text: the limits are {} times the bytes of the tokens, and {} KiB "
           "at "
           "once",
           kGrowth, kMostReturned >> 10);
    }
    returnable_ -= token.size();
    return out.append(token);
  }
  chargeStage(work, token.size());
  stages_[stage]->feed(std::move(token), work, [&](Utf8Text next) { run(stage + 1, std::move(next), work, out); });
}

Utf8Text DecodeStream::feed(Utf8View token) {
  fed_ += token.size();
  const size_t counted = std::min(token.size(), kMostCounted);
  unreturned_ = std::min(unreturned_ + counted, kMostHeldBack);
  returnable_ = std::min(returnable_ + std::max(kMostFree, kGrowth * counted), kMostReturned);
  WorkMeter meter({.work = kDecodeWork + kDecodeWorkPerByte * unreturned_});
  Scratch scratch(Scratch::limitFor(fed_), meter);
  EncodeWork work{meter, scratch};
  Utf8Text out;
  run(0, Utf8Text(token), work, out);
  if (!out.empty()) unreturned_ = 0;
  charge(meter.spent());
  return out;
}

Utf8Text DecodeStream::flush() {
  WorkMeter meter({.work = kDecodeWork + kDecodeWorkPerByte * std::min(fed_, kMostHeldBack)});
  Scratch scratch(Scratch::limitFor(fed_), meter);
  EncodeWork work{meter, scratch};
  Utf8Text out;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    stages_[stage]->flush(work, [&](Utf8Text next) { run(stage + 1, std::move(next), work, out); });
  }
  charge(meter.spent());
  return out;
}

}  // namespace chorus
