#include "text/text_codec.h"

#include "base/error.h"
#include "text/chat_template.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer/token_bytes.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {
namespace {

class DetokenizedStream : public TextStream {
 public:
  DetokenizedStream(std::shared_ptr<const Tokenizer> tokenizer, const TextStreamOptions& options)
      : detokenizer_(std::move(tokenizer), options.skip_special_tokens, options.meter, options.before),
        matcher_(options.stops, options.include_stop),
        before_stops_(options.stops_from) {}

  Piece push(int32_t token) override {
    std::string text = detokenizer_.feed(token);
    if (before_stops_ > 0) {
      --before_stops_;
      return {std::move(text), std::nullopt};
    }
    return piece(matcher_.feed(text));
  }

  Piece finish() override {
    std::string text = matcher_.feed(detokenizer_.flush());
    if (!matcher_.stopped()) text += matcher_.flush();
    return piece(std::move(text));
  }

 private:
  Piece piece(std::string text) const {
    if (!matcher_.stopped()) return {std::move(text), std::nullopt};
    return {std::move(text), matcher_.matchedStop()};
  }

  IncrementalDetokenizer detokenizer_;
  StopMatcher matcher_;
  int32_t before_stops_;
};

class TokenizerCodec : public TextCodec {
 public:
  TokenizerCodec(std::shared_ptr<const Tokenizer> tokenizer, WorkMeter& meter)
      : tokenizer_(std::move(tokenizer)), chat_(*tokenizer_, "chat template", meter) {}

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, WorkMeter& meter,
                              const EncodeLimits& limits) const override {
    return tokenizer_->encode(text, add_special_tokens, meter, limits);
  }
  std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens) const override {
    return tokenizer_->decode(tokens, skip_special_tokens);
  }
  std::string tokenBytes(int32_t token) const override { return chorus::tokenBytes(*tokenizer_, token); }
  std::string tokenText(int32_t token) const override { return tokenizer_->tokenText(token); }
  std::unique_ptr<TextStream> newStream(const TextStreamOptions& options) const override {
    return std::make_unique<DetokenizedStream>(tokenizer_, options);
  }
  int32_t vocabSize() const override { return tokenizer_->vocabSize(); }
  size_t memoryBytes() const override { return tokenizer_->memoryBytes() + chat_.memoryBytes(); }
  std::optional<int32_t> eosTokenId() const override { return tokenizer_->eosId(); }
  bool hasChatTemplate() const override { return !chat_.empty(); }
  bool hasChatTemplate(const std::string& name) const override { return chat_.has(name); }
  bool knowsDeveloper(const ChatRendering& how) const override { return chat_.nameDeveloper(how.chat_template, false); }
  std::string renderChat(const OrderedJson& messages, const ChatRendering& how, WorkMeter& meter) const override {
    ChatTemplateInput input;
    input.messages = messages;
    input.documents = how.documents;
    input.variables = how.variables;
    input.add_generation_prompt = how.add_generation_prompt;
    input.continue_final_message = how.continue_final_message;
    return chat_.render(std::move(input), how.chat_template, meter);
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatTemplates chat_;
};

}  // namespace

std::shared_ptr<const TextCodec> loadTextCodec(const std::filesystem::path& directory) {
  WorkMeter meter;
  return parseTextCodec(readTokenizerFileSet(directory), nullptr, meter);
}

std::shared_ptr<const TextCodec> parseTextCodec(const TokenizerFileSet& files, const TokenizerFileSet* fallback,
                                                WorkMeter& meter, int32_t most_tokens) {
  const TokenizerFiles parsed = parseTokenizerFiles(files, fallback, meter);
  return std::make_shared<TokenizerCodec>(
      Tokenizer::fromJson(parsed.tokenizer, parsed.config, parsed.source, meter, most_tokens), meter);
}

}  // namespace chorus
