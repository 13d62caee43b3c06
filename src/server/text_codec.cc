#include "server/text_codec.h"

#include "base/error.h"
#include "text/chat_template.h"
#include "text/incremental_detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace chorus::server {
namespace {

class DetokenizedStream : public TextStream {
 public:
  DetokenizedStream(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<std::string>& stops)
      : detokenizer_(std::move(tokenizer), true), matcher_(stops) {}

  Piece push(int32_t token) override { return piece(matcher_.feed(detokenizer_.feed(token))); }

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
};

class TokenizerCodec : public TextCodec {
 public:
  TokenizerCodec(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat)
      : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}

  std::vector<int32_t> encode(std::string_view text, bool addSpecialTokens) const override {
    return tokenizer_->encode(text, addSpecialTokens);
  }
  std::string decode(std::span<const int32_t> tokens, bool skipSpecialTokens) const override {
    return tokenizer_->decode(tokens, skipSpecialTokens);
  }
  std::unique_ptr<TextStream> newStream(const std::vector<std::string>& stops) const override {
    return std::make_unique<DetokenizedStream>(tokenizer_, stops);
  }
  int32_t vocabSize() const override { return tokenizer_->vocabSize(); }
  std::optional<int32_t> eosTokenId() const override { return tokenizer_->eosId(); }
  bool hasChatTemplate() const override { return chat_ != nullptr; }
  std::string renderChat(const OrderedJson& messages, const OrderedJson& tools) const override {
    return chat_->render({.messages = messages, .tools = tools, .add_generation_prompt = true});
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;
};

}  // namespace

std::shared_ptr<const TextCodec> loadTextCodec(const std::filesystem::path& directory) {
  auto tokenizer = Tokenizer::load(directory);
  std::shared_ptr<const ChatTemplate> chat;
  if (!tokenizer->chatTemplates().empty()) chat = ChatTemplate::load(directory);
  return std::make_shared<TokenizerCodec>(std::move(tokenizer), std::move(chat));
}

}  // namespace chorus::server
