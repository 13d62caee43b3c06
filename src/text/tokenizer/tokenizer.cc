#include "text/tokenizer/tokenizer.h"

#include "base/error.h"
#include "text/tokenizer/added_vocabulary.h"
#include "text/tokenizer/config_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/tokenizer_files.h"
#include "text/tokenizer/utf8_json.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxAddedTokenBytes = 4096;
// Work limit for normalizing one added token.
constexpr uint64_t kAddedTokenWork = uint64_t{1} << 20;

std::map<std::string, std::string> readSpecialTokens(const Json& config) {
  std::map<std::string, std::string> tokens;
  if (!config.is_object()) return tokens;
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token") || name.starts_with("add_")) continue;
    if (auto content = tokenContent(value)) tokens.emplace(name, std::move(*content));
  }
  return tokens;
}

std::map<std::string, std::string> readChatTemplates(const Json& config, const std::string& source) {
  std::map<std::string, std::string> templates;
  const auto it = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || it == config.end() || it->is_null()) return templates;
  if (it->is_string()) {
    templates.emplace("default", it->get<std::string>());
  } else if (it->is_array()) {
    if (it->size() > kMaxChatTemplates) {
      fail(ErrorCode::kUnsupported, "{}: 'chat_template' has {} templates; the limit is {}", source, it->size(),
           kMaxChatTemplates);
    }
    for (const Json& item : *it) {
      templates.emplace(jsonGet<std::string>(item, "name", source), jsonGet<std::string>(item, "template", source));
    }
  } else {
    fail(ErrorCode::kInvalidArgument, "{}: 'chat_template' must be a string or a list", source);
  }
  return templates;
}

AddedToken readAddedToken(const Json& json, const std::string& source) {
  AddedToken token;
  token.content = jsonGetText(json, "content", source);
  token.single_word = jsonGetOr<bool>(json, "single_word", false, source);
  token.lstrip = jsonGetOr<bool>(json, "lstrip", false, source);
  token.rstrip = jsonGetOr<bool>(json, "rstrip", false, source);
  token.special = jsonGetOr<bool>(json, "special", false, source);
  token.normalized = jsonGetOr<bool>(json, "normalized", !token.special, source);
  if (token.content.size() > kMaxAddedTokenBytes) {
    fail(ErrorCode::kUnsupported, "{}: a token has {} bytes; the limit is {}", source, token.content.size(),
         kMaxAddedTokenBytes);
  }
  return token;
}
}  // namespace

struct Tokenizer::State {
  std::unique_ptr<const Normalizer> normalizer;
  std::unique_ptr<const PreTokenizer> pre_tokenizer;
  std::unique_ptr<const TokenModel> model;
  SpecialTokens special;
  std::unique_ptr<const TokenDecoder> decoder;
  AddedVocabulary added;
  std::map<std::string, std::string> special_tokens;
  std::map<std::string, std::string> chat_templates;
  bool split_special_tokens = false;  // special tokens in a text are text

  // The limits of parsing a document, and the document's name.
  struct Parse {
    const std::string& source;
    WorkMeter& meter;
    int32_t most_tokens;
    void checkSize(int32_t tokens) const;
  };
  void readAddedTokens(const Json& tokenizer, const Parse& parse);
  void addConfigTokens(const Json& config, const Parse& parse);
  int32_t idEnd() const {
    return std::max(model->vocabulary().idEnd(), added.tokens().empty() ? 0 : added.tokens().rbegin()->first + 1);
  }
  void addToken(AddedToken token, std::optional<int32_t> given_id, const Parse& parse);
  void encodePart(Utf8View text, bool at_start, EncodeWork& work, TokenSink& sink) const;
  void encodeWords(Utf8View text, bool at_start, EncodeWork& work, TokenSink& sink) const;
};

void Tokenizer::State::Parse::checkSize(int32_t tokens) const {
  if (tokens <= most_tokens) return;
  fail(ErrorCode::kUnsupported,
       "{}: its tokenizer has at least {} tokens, but the engine has embeddings for {}; remove the added tokens from "
       "the "
       "tokenizer's files",
       source, tokens, most_tokens);
}

// Adds a token, or changes the properties of one that was added before. A token that the model has must have the
// model's id; other tokens must follow the vocabulary in order. Throws kCorrupt otherwise. given_id: nullopt if the
// file leaves the id to this function.
void Tokenizer::State::addToken(AddedToken token, std::optional<int32_t> given_id, const Parse& parse) {
  const std::string& source = parse.source;
  const auto in_model = model->vocabulary().tokenId(token.content.bytes());
  const auto in_added = added.tokenId(token.content.bytes());
  int32_t id = static_cast<int32_t>(model->vocabulary().size());
  if (!added.tokens().empty()) id = std::max(id, added.tokens().rbegin()->first + 1);
  if (in_added)
    id = *in_added;
  else if (in_model)
    id = *in_model;
  if (given_id && *given_id != id) {
    fail(ErrorCode::kCorrupt, "{}: the added token '{}' has the id {}; expected {}", source,
         printable(token.content.bytes()), *given_id, id);
  }
  parse.checkSize(id + 1);
  parse.meter.charge(WorkMeter::kObject + token.content.size());
  token.decoded = token.content;
  if (token.normalized && normalizer) {
    WorkMeter meter({.work = kAddedTokenWork});
    Scratch scratch(Scratch::limitFor(token.content.size()), meter);
    EncodeWork work{meter, scratch};
    ScratchText normalized(work);
    normalizer->normalize(token.content, work, normalized);
    token.decoded = Utf8Text(normalized.view());
    parse.meter.charge(meter.spent());
  }
  if (token.decoded.empty()) {
    fail(ErrorCode::kUnsupported, "{}: the normalizer turns the added token '{}' into an empty text", source,
         printable(token.content.bytes()));
  }
  if (token.decoded.size() > 4 * token.content.size() + 16) {
    fail(ErrorCode::kUnsupported, "{}: the normalizer makes {} bytes of the added token '{}'", source,
         token.decoded.size(), printable(token.content.bytes()));
  }
  added.add(std::move(token), id);
}

void Tokenizer::State::readAddedTokens(const Json& tokenizer, const Parse& parse) {
  const std::string& source = parse.source;
  const auto list = tokenizer.find("added_tokens");
  if (list == tokenizer.end() || list->is_null()) return;
  if (!list->is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'added_tokens' must be a list", source);
  for (const Json& item : *list) {
    AddedToken token = readAddedToken(item, source);
    const auto id = item.contains("id") ? std::optional(jsonGet<int32_t>(item, "id", source)) : std::nullopt;
    if (!token.content.empty()) addToken(std::move(token), id, parse);
  }
}

// Adds the tokens of the config's added_tokens_decoder. Only a tokenizer that was imported from other files has one:
// addConfiguredTokens removes it beside a tokenizer.json.
void Tokenizer::State::addConfigTokens(const Json& config, const Parse& parse) {
  const std::string& source = parse.source;
  const auto list = config.is_object() ? config.find("added_tokens_decoder") : config.end();
  if (!config.is_object() || list == config.end() || !list->is_object()) return;
  std::map<int64_t, AddedToken> missing;
  for (const auto& [key, item] : list->items()) {
    AddedToken token = readAddedToken(item, source);
    if (token.content.empty() || added.tokenId(token.content.bytes())) continue;
    missing.emplace(decoderId(key, source), std::move(token));
  }
  for (auto& [id, token] : missing) addToken(std::move(token), static_cast<int32_t>(id), parse);
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& dir) {
  const TokenizerFiles files = readTokenizerFiles(dir);
  return fromJson(files.tokenizer, files.config, files.source);
}

std::shared_ptr<const Tokenizer> Tokenizer::fromJson(const Json& tokenizer, const Json& config,
                                                     const std::string& source) {
  WorkMeter meter;
  return fromJson(tokenizer, config, source, meter);
}

std::shared_ptr<const Tokenizer> Tokenizer::fromJson(const Json& tokenizer, const Json& config,
                                                     const std::string& source, WorkMeter& meter, int32_t most_tokens) {
  if (!tokenizer.is_object()) fail(ErrorCode::kInvalidArgument, "{}: expected a JSON object", source);
  const Json none;
  const auto part = [&](const char* key) -> const Json& {
    const auto it = tokenizer.find(key);
    return it == tokenizer.end() ? none : *it;
  };
  auto state = std::make_unique<State>();
  state->normalizer = makeNormalizer(part("normalizer"), source + ": normalizer", meter);
  state->pre_tokenizer = makePreTokenizer(part("pre_tokenizer"), source + ": pre_tokenizer", meter);
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end()) fail(ErrorCode::kInvalidArgument, "{}: 'model' is missing", source);
  state->model = makeTokenModel(*model, source + ": model", meter);
  const State::Parse parse{source, meter, most_tokens};
  parse.checkSize(state->model->vocabulary().idEnd());
  state->special = readPostProcessor(part("post_processor"), source + ": post_processor");
  state->decoder = std::make_unique<const TokenDecoder>(part("decoder"), source + ": decoder", meter);
  state->readAddedTokens(tokenizer, parse);
  state->addConfigTokens(config, parse);
  state->added.prepareSearch(meter);
  state->special_tokens = readSpecialTokens(config);
  state->split_special_tokens = config.is_object() && jsonGetOr<bool>(config, "split_special_tokens", false, source);
  state->chat_templates = readChatTemplates(config, source);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(state)));
}

void Tokenizer::State::encodeWords(Utf8View text, bool at_start, EncodeWork& work, TokenSink& sink) const {
  if (!pre_tokenizer) return model->encode(text, work, sink);
  pre_tokenizer->split({text, at_start}, work, [&](const Piece& piece) { model->encode(piece.text, work, sink); });
}

void Tokenizer::State::encodePart(Utf8View text, bool at_start, EncodeWork& work, TokenSink& sink) const {
  ScratchText normalized(work);
  if (normalizer) {
    normalizer->normalize(text, work, normalized);
    text = normalized.view();
    at_start = at_start && !normalized.lostStart();
  }
  added.split(text, {.normalized = true, .special = !split_special_tokens}, work,
              [&](const AddedVocabulary::Part& part) {
                if (part.id >= 0)
                  sink.push(part.id);
                else
                  encodeWords(text.sub(part.begin, part.end), at_start && part.begin == 0, work, sink);
              });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  WorkMeter meter;
  return encode(text, add_special_tokens, meter);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens, WorkMeter& meter,
                                       const EncodeLimits& limits) const {
  meter.charge(text.size());
  Utf8Text corrected;
  auto whole = Utf8View::check(text);
  if (!whole) {
    corrected = Utf8Text::replacingInvalid(text);
    whole = corrected;
  }
  Scratch scratch(Scratch::limitFor(whole->size()), meter);
  EncodeWork work{meter, scratch};
  std::vector<int32_t> ids;
  ids.reserve(std::min(text.size() / 3 + 4, limits.max_tokens));
  TokenSink sink(ids, limits);
  const auto append = [&](const std::vector<int32_t>& special) {
    if (add_special_tokens) ids.insert(ids.end(), special.begin(), special.end());
  };
  append(state_->special.before);
  state_->added.split(*whole, {.normalized = false, .special = !state_->split_special_tokens}, work,
                      [&](const AddedVocabulary::Part& part) {
                        if (part.id >= 0)
                          sink.push(part.id);
                        else
                          state_->encodePart(whole->sub(part.begin, part.end), part.begin == 0, work, sink);
                      });
  append(state_->special.after);
  sink.check();
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  DecodeStream stream(*state_->decoder);
  std::string text;
  for (const int32_t id : ids) {
    const Utf8Text* token = decoderText(id);
    if (token != nullptr && !(skip_special_tokens && isSpecial(id))) text += stream.feed(*token).bytes();
  }
  return text += stream.flush().bytes();
}

int32_t Tokenizer::vocabSize() const { return state_->idEnd(); }

std::optional<int32_t> Tokenizer::tokenId(std::string_view token) const {
  if (const auto id = state_->added.tokenId(token)) return id;
  return state_->model->vocabulary().tokenId(token);
}

const std::string& Tokenizer::tokenText(int32_t id) const {
  static const std::string kNone;
  if (const AddedToken* token = state_->added.find(id)) return token->content.bytes();
  const Utf8Text* text = state_->model->vocabulary().tokenText(id);
  return text != nullptr ? text->bytes() : kNone;
}

const Utf8Text* Tokenizer::decoderText(int32_t id) const {
  const AddedToken* token = state_->added.find(id);
  return token != nullptr ? &token->decoded : state_->model->vocabulary().tokenText(id);
}

bool Tokenizer::isSpecial(int32_t id) const {
  const Utf8Text* text = decoderText(id);
  return text != nullptr && state_->added.isSpecial(text->bytes());
}

std::optional<int32_t> Tokenizer::specialId(const char* name) const {
  const auto it = state_->special_tokens.find(name);
  return it == state_->special_tokens.end() ? std::nullopt : tokenId(it->second);
}

const std::map<std::string, std::string>& Tokenizer::specialTokens() const { return state_->special_tokens; }
const std::map<std::string, std::string>& Tokenizer::chatTemplates() const { return state_->chat_templates; }
const TokenDecoder& Tokenizer::decoder() const { return *state_->decoder; }

size_t Tokenizer::memoryBytes() const {
  constexpr size_t kMapNode = 128;
  size_t bytes = sizeof(State) + state_->model->memoryBytes() + state_->added.memoryBytes() +
                 state_->decoder->memoryBytes() +
                 (state_->special.before.size() + state_->special.after.size()) * sizeof(int32_t);
  if (state_->normalizer) bytes += state_->normalizer->memoryBytes();
  if (state_->pre_tokenizer) bytes += state_->pre_tokenizer->memoryBytes();
  for (const auto* texts : {&state_->special_tokens, &state_->chat_templates}) {
    for (const auto& [name, text] : *texts) bytes += kMapNode + name.size() + text.size();
  }
  return bytes;
}

}  // namespace chorus
