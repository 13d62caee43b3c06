#include "text/tokenizer/decoder.h"

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/text_pattern.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// Tokens of the byte alphabet to bytes to UTF-8.
class ByteLevelStage final : public DecoderStage {
 public:
  void feed(std::string token, const Sink& sink) override {
    appendByteLevelToken(pending_, token);
    std::string out;
    size_t at = 0;
    while (at < pending_.size()) {
      const std::string_view rest = std::string_view(pending_).substr(at);
      const Utf8Step step = decodeUtf8(rest);
      if (step.kind == Utf8Step::Kind::kIncomplete) break;
      const auto length = static_cast<size_t>(step.length);
      out += step.kind == Utf8Step::Kind::kCharacter ? rest.substr(0, length) : kReplacementCharacter;
      at += length;
    }
    pending_.erase(0, at);
    if (!out.empty()) sink(std::move(out));
  }
  void flush(const Sink& sink) override {
    if (!pending_.empty()) sink(toValidUtf8(pending_));
    pending_.clear();
  }

 private:
  std::string pending_;  // the beginning of a character
};

// Runs of <0xNN> tokens to UTF-8. Whether a run is text is known only at its end, so it is held back until then.
class ByteFallbackStage final : public DecoderStage {
 public:
  void feed(std::string token, const Sink& sink) override {
    if (token.size() == 6 && token.starts_with("<0x") && token[5] == '>') {
      const int high = hexDigit(token[3]), low = hexDigit(token[4]);
      if (high >= 0 && low >= 0) {
        bytes_.push_back(static_cast<char>(high * 16 + low));
        return;
      }
    }
    flush(sink);
    sink(std::move(token));
  }
  void flush(const Sink& sink) override {
    if (bytes_.empty()) return;
    std::string text = toValidUtf8(bytes_);
    if (text != bytes_) {
      text.clear();
      for (size_t i = 0; i < bytes_.size(); ++i) text += kReplacementCharacter;
    }
    bytes_.clear();
    sink(std::move(text));
  }

 private:
  static int hexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }
  std::string bytes_;
};

class ReplaceStage final : public DecoderStage {
 public:
  ReplaceStage(std::shared_ptr<const TextPattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void feed(std::string token, const Sink& sink) override { sink(pattern_->replaceAll(token, content_)); }

 private:
  std::shared_ptr<const TextPattern> pattern_;
  std::string content_;
};

class MetaspaceStage final : public DecoderStage {
 public:
  MetaspaceStage(std::string replacement, bool drop_first, bool fused)
      : replacement_(std::move(replacement)), drop_(drop_first), fused_(fused) {}
  void feed(std::string token, const Sink& sink) override {
    std::string out;
    for (size_t at = 0; at < token.size();) {
      if (std::string_view(token).substr(at).starts_with(replacement_)) {
        if (!drop_) out.push_back(' ');
        at += replacement_.size();
      } else {
        out.push_back(token[at++]);
      }
    }
    if (!fused_) drop_ = false;
    sink(std::move(out));
  }

 private:
  std::string replacement_;
  bool drop_;  // this is the first token, whose replacement characters were prepended
  bool fused_;
};

// Strips up to start characters from the front and stop from the back of every token.
class StripStage final : public DecoderStage {
 public:
  StripStage(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void feed(std::string token, const Sink& sink) override {
    std::string_view text = token;
    for (size_t i = 0; i < start_ && text.starts_with(content_); ++i) text.remove_prefix(content_.size());
    for (size_t i = 0; i < stop_ && text.ends_with(content_); ++i) text.remove_suffix(content_.size());
    sink(std::string(text));
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

// The same on one token that comes in stretches: counts what it may still strip, and holds back what may be its end.
class FusedStripStage final : public DecoderStage {
 public:
  FusedStripStage(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void feed(std::string token, const Sink& sink) override {
    std::string_view text = token;
    while (start_ > 0 && !text.empty()) {
      if (!text.starts_with(content_)) {
        start_ = 0;
        break;
      }
      text.remove_prefix(content_.size());
      --start_;
    }
    held_ += text;
    size_t keep = 0;
    while (keep / content_.size() < stop_ &&
           std::string_view(held_).substr(0, held_.size() - keep).ends_with(content_)) {
      keep += content_.size();
    }
    if (held_.size() > keep) {
      std::string out = held_.substr(0, held_.size() - keep);
      held_.erase(0, out.size());
      sink(std::move(out));
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
  std::string held_;
};

// Null decoder: spaces between tokens.
class JoinStage final : public DecoderStage {
 public:
  void feed(std::string token, const Sink& sink) override {
    if (!first_) token.insert(0, 1, ' ');
    first_ = false;
    sink(std::move(token));
  }

 private:
  bool first_ = true;
};

// Runs a stage that must see the whole of a token on a token that comes in stretches: at its end.
class WholeTokenStage final : public DecoderStage {
 public:
  explicit WholeTokenStage(std::unique_ptr<DecoderStage> stage) : stage_(std::move(stage)) {}
  void feed(std::string token, const Sink&) override { text_ += token; }
  void flush(const Sink& sink) override {
    stage_->feed(std::move(text_), sink);
    stage_->flush(sink);
    text_.clear();
  }

 private:
  std::unique_ptr<DecoderStage> stage_;
  std::string text_;
};

std::string oneCharacter(const Json& json, const char* key, const std::string& source) {
  auto text = jsonGet<std::string>(json, key, source);
  if (countCharacters(text) != 1) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be one character", source, key);
  return text;
}
}  // namespace

Decoder::Decoder(const Json& json, const std::string& source) {
  if (json.is_null())
    stages_.push_back([] { return std::make_unique<JoinStage>(); });
  else
    append(json, source);
}

void Decoder::append(const Json& json, const std::string& source) {
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (stages_.size() >= 32) fail(ErrorCode::kUnsupported, "{}: more than 32 decoders in a row", source);
  const auto add = [&](Factory make) {
    if (!fused_) return stages_.push_back(std::move(make));
    stages_.push_back([make = std::move(make)] { return std::make_unique<WholeTokenStage>(make()); });
  };
  if (type == "Sequence") {
    const Json list = json.value("decoders", Json());
    if (!list.is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'decoders' must be a list", here);
    for (const Json& part : list) append(part, here);
  } else if (type == "ByteLevel") {
    add([] { return std::make_unique<ByteLevelStage>(); });
    fused_ = true;
  } else if (type == "ByteFallback") {
    add([] { return std::make_unique<ByteFallbackStage>(); });
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Replace") {
    auto pattern = std::make_shared<const TextPattern>(TextPattern::fromJson(json.value("pattern", Json()), here));
    pattern->refuseEmptyMatches(here);
    add([pattern, content = jsonGet<std::string>(json, "content", here)] {
      return std::make_unique<ReplaceStage>(pattern, content);
    });
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
  } else {
    fail(ErrorCode::kUnsupported, "{}: the decoder '{}' is not supported", source, printable(type));
  }
}

std::vector<std::unique_ptr<DecoderStage>> Decoder::start() const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  stages.reserve(stages_.size());
  for (const Factory& make : stages_) stages.push_back(make());
  return stages;
}

void DecodeStream::run(size_t stage, std::string token, std::string& out) {
  if (stage == stages_.size()) {
    out += token;
    return;
  }
  stages_[stage]->feed(std::move(token), [&](std::string next) { run(stage + 1, std::move(next), out); });
}

std::string DecodeStream::feed(std::string_view token) {
  std::string out;
  run(0, std::string(token), out);
  return out;
}

std::string DecodeStream::flush() {
  std::string out;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    stages_[stage]->flush([&](std::string next) { run(stage + 1, std::move(next), out); });
  }
  return out;
}

}  // namespace chorus
