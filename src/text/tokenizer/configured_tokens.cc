#include "text/tokenizer/configured_tokens.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/config_tokens.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr const char* kDecoder = "added_tokens_decoder";
constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kAdditional = "additional_special_tokens";
constexpr const char* kSpecific = "model_specific_special_tokens";

bool isStandardName(std::string_view name) {
  return std::ranges::find(kSpecialTokenNames, name) != std::end(kSpecialTokenNames);
}

// The keys of the top-level object, or of the object that it has at `field`, in the order of the text, which Json does
// not keep. nlohmann::ordered_json keeps it, but takes quadratic time for many keys.
class KeyOrder final : public JsonEvents {
 public:
  static std::vector<std::string> of(const TokenizerConfigFile& file, std::string_view field = {}) {
    KeyOrder order(field);
    if (file.json.is_object()) parseJsonEvents(file.text, file.path, {}, order);
    return std::move(order.keys_);
  }

  bool key(string_t& key) override {
    if (depth_ == 1 && !field_.empty()) {
      in_field_ = key == field_;
      if (in_field_) keys_.clear(), seen_.clear();
    } else if (depth_ == (field_.empty() ? 1 : 2) && (field_.empty() || in_field_) && seen_.insert(key).second) {
      keys_.push_back(key);
    }
    return true;
  }
  bool start_object(std::size_t) override { return ++depth_, true; }
  bool end_object() override { return --depth_, true; }
  // A list counts as two levels, so that the keys of the objects in it are not taken for those of the field.
  bool start_array(std::size_t) override { return depth_ += 2, true; }
  bool end_array() override { return depth_ -= 2, true; }

 private:
  explicit KeyOrder(std::string_view field) : field_(field) {}

  std::string_view field_;
  bool in_field_ = false;
  int depth_ = 0;
  std::vector<std::string> keys_;
  std::set<std::string> seen_;
};

struct Token {
  std::string content;
  bool is_text = false;  // given as a string, without properties
  bool single_word = false, lstrip = false, rstrip = false, special = false;
  std::optional<bool> normalized;  // nullopt: the opposite of `special`

  auto key() const { return std::tie(content, is_text, single_word, lstrip, rstrip, special, normalized); }
  Json item() const {
    return {{"content", content}, {"single_word", single_word}, {"lstrip", lstrip},
            {"rstrip", rstrip},   {"special", special},         {"normalized", normalized.value_or(!special)}};
  }
};

// `what` names the token in errors.
Token readToken(const Json& value, std::string_view what, const std::string& source) {
  auto content = tokenContent(value);
  if (!content) {
    fail(ErrorCode::kInvalidArgument, "{}: {} must be a token: a string, or an object with a 'content'", source,
         printable(what));
  }
  Token token{.content = std::move(*content), .is_text = value.is_string()};
  if (token.is_text) return token;
  token.single_word = jsonGetOr<bool>(value, "single_word", false, source);
  token.lstrip = jsonGetOr<bool>(value, "lstrip", false, source);
  token.rstrip = jsonGetOr<bool>(value, "rstrip", false, source);
  token.special = jsonGetOr<bool>(value, "special", false, source);
  const auto normalized = value.find("normalized");
  if (normalized != value.end() && !normalized->is_null())
    token.normalized = jsonGet<bool>(value, "normalized", source);
  return token;
}

// What Python takes for false.
bool isFalsy(const Json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || it->empty() || *it == false || *it == 0) return true;
  return it->is_string() && it->get_ref<const std::string&>().empty();
}

const Json& listOf(const Json& json, const char* key, const std::string& source) {
  static const Json kNone = Json::array();
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return kNone;
  if (!it->is_array()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list of tokens", source, key);
  return *it;
}

// Special tokens with names that only some models have, e.g. "image_token". A name keeps its place when it gets another
// value.
class NamedTokens {
 public:
  void set(const std::string& name, Token token) {
    const auto [it, is_new] = place_.try_emplace(name, items_.size());
    if (is_new)
      items_.emplace_back(name, std::move(token));
    else
      items_[it->second].second = std::move(token);
  }
  void setAll(const Json& object, const std::vector<std::string>& order, const std::string& source) {
    for (const std::string& name : order) {
      if (const auto it = object.find(name); it != object.end()) set(name, readToken(*it, name, source));
    }
  }
  const std::vector<std::pair<std::string, Token>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Token>> items_;
  std::map<std::string, size_t> place_;
};

void makeSpecial(Json& token) {
  token["special"] = true;
  token.erase("__type");
}

using TokensById = std::map<uint64_t, Token>;

void enter(TokensById& tokens, uint64_t id, Token token, const std::string& source) {
  if (!tokens.emplace(id, std::move(token)).second)
    fail(ErrorCode::kCorrupt, "{}: two added tokens have the id {}", source, id);
}

// The texts of the special tokens that make tokens of other lists special. Beside a tokenizer.json, these are fewer at
// first: transformers overlooks objects of tokenizer_config.json and names that only some models have, and
// special_tokens_map.json has no additional_special_tokens.
std::set<std::string> specialContents(const Json& config, bool has_tokenizer_json) {
  std::set<std::string> contents;
  const auto take = [&](const Json& token) {
    if (has_tokenizer_json && token.is_object() && token.contains("__type")) return;
    if (auto content = tokenContent(token)) contents.insert(std::move(*content));
  };
  for (const auto& [name, value] : config.items()) {
    if (has_tokenizer_json ? isStandardName(name) : name.ends_with("_token")) take(value);
  }
  const char* extra = has_tokenizer_json || !isFalsy(config, kExtra) ? kExtra : kAdditional;
  if (const auto it = config.find(extra); it != config.end() && it->is_structured()) {
    for (const Json& token : *it) take(token);
  }
  return contents;
}

// The tokens of added_tokens.json.
TokensById readAddedTokens(const TokenizerConfigFile& added, const std::set<std::string>& special) {
  TokensById tokens;
  if (added.json.is_null()) return tokens;
  if (!added.json.is_object()) fail(ErrorCode::kCorrupt, "{}: expected a JSON object", added.path);
  for (const auto& [content, id] : added.json.items()) {
    if (!id.is_number_unsigned()) {
      fail(ErrorCode::kCorrupt, "{}: the token '{}' has an id that is not a number", added.path, printable(content));
    }
    const bool is_special = special.contains(content);
    enter(tokens, id.get<uint64_t>(), {.content = content, .special = is_special, .normalized = !is_special},
          added.path);
  }
  return tokens;
}

// Checks the tokens of special_tokens_map.json here, where their file is known.
void checkSpecialTokensMap(const TokenizerConfigFile& map) {
  for (const auto& [name, value] : map.json.items()) {
    const bool is_token =
        isStandardName(name) ? !value.is_null() : name.ends_with("_token") && (value.is_string() || value.is_object());
    if (is_token) readToken(value, name, map.path);
    if (name == kAdditional || (name == kExtra && !value.is_object())) {
      for (const Json& token : listOf(map.json, name.c_str(), map.path)) readToken(token, name, map.path);
    }
  }
}

class Reader {
 public:
  Reader(const TokenizerConfigFile& config_file, const TokenizerConfigFile& map, const TokenizerConfigFile& added,
         Json& tokenizer, Json& config)
      : config_file_(config_file),
        map_(map),
        added_(added),
        tokenizer_(tokenizer),
        config_(config),
        source_(config_file.text.empty() ? map.path : config_file.path) {}

  void read() {
    Json& list = tokenizer_["added_tokens"];
    if (list.is_null()) list = Json::array();
    for (const Json& item : list) known_.insert(jsonGet<std::string>(item, "content", source_));
    readNames();
    if (config_.contains(kDecoder))
      readDecoder();
    else
      readOlderFiles();
    for (const auto& [id, token] : by_id_) known_.insert(token.content);
    readSpecialTokens();
    addTokens(list);
    config_.erase(kDecoder);
  }

 private:
  // Names that tokenizer_config.json gives to tokens of this model.
  void readNames() {
    if (config_.contains(kAdditional) && isFalsy(config_, kExtra)) {
      config_[kExtra] = std::move(config_[kAdditional]);
      config_.erase(kAdditional);
      extra_name_ = kAdditional;
    }
    NamedTokens named;
    for (const std::string& name : KeyOrder::of(config_file_)) {
      const auto it = config_.find(name);
      if (it == config_.end() || !name.ends_with("_token") || isStandardName(name)) continue;
      if (it->is_string())
        named.set(name, readToken(*it, name, source_));
      else if (it->is_object() && it->contains("__type") && (*it)["__type"] == "AddedToken")
        objects_.push_back(name);
    }
    if (const auto it = config_.find(kExtra); it != config_.end() && it->is_object()) {
      named.setAll(*it, KeyOrder::of(config_file_, extra_name_), source_);
      config_.erase(kExtra);
    }
    if (const auto it = config_.find(kSpecific); named.items().empty() && it != config_.end() && it->is_object()) {
      named.setAll(*it, KeyOrder::of(config_file_, kSpecific), source_);
    }
    explicit_ = std::move(named);
  }

  void readDecoder() {
    const Json& decoder = config_[kDecoder];
    if (!decoder.is_object()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be an object", source_, kDecoder);
    for (const auto& [key, value] : decoder.items()) {
      const int32_t id = decoderId(key, source_);
      if (!value.is_object()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must have only objects", source_, kDecoder);
      enter(by_id_, static_cast<uint64_t>(id), readToken(value, kDecoder, source_), source_);
    }
  }

  void readOlderFiles() {
    addSpecialTokensMap(map_, config_);
    if (const auto it = config_.find(kExtra); it != config_.end() && it->is_object()) {
      explicit_.setAll(*it, KeyOrder::of(map_, kExtra), map_.path);
      config_.erase(kExtra);
    }
    by_id_ = readAddedTokens(added_, specialContents(config_, true));
    std::set<std::string> contents;
    for (const auto& [id, token] : by_id_) contents.insert(token.content);
    // The tokenizer's own tokens count as tokens of these files, so that they keep their ids, and one that is named
    // becomes special. Special ones that no file repeats are left out, because they would not change.
    for (const Json& item : tokenizer_["added_tokens"]) {
      const auto id = jsonGet<uint64_t>(item, "id", source_);
      if (const auto replaced = by_id_.extract(id)) replaced_.emplace(replaced.mapped().content, replaced.mapped());
      Token token = readToken(item, "token", source_);
      if (!token.special || contents.contains(token.content)) by_id_.emplace(id, std::move(token));
    }
  }

  // The special tokens by their names, and then those of the list.
  void readSpecialTokens() {
    if (const auto padding = tokenizer_.find("padding"); padding != tokenizer_.end() && padding->is_object()) {
      if (!config_.contains("pad_token")) config_["pad_token"] = padding->value("pad_token", Json());
    }
    for (const char* name : kSpecialTokenNames) {
      const auto it = config_.find(name);
      if (it == config_.end() || it->is_null()) continue;
      Token token = readToken(*it, name, source_);
      const auto replaced = replaced_.find(token.content);
      special_.push_back(replaced != replaced_.end() ? replaced->second : std::move(token));
    }
    NamedTokens named;
    const auto take = [&](const std::string& name) {
      const auto it = config_.find(name);
      if (it != config_.end() && (it->is_string() || it->is_object())) named.set(name, readToken(*it, name, source_));
    };
    for (const std::string& name : objects_) take(name);
    if (!config_.contains(kDecoder)) {
      for (const std::string& name : KeyOrder::of(map_))
        if (name.ends_with("_token") && !isStandardName(name)) take(name);
    }
    for (const auto& [name, token] : explicit_.items()) named.set(name, token);
    for (const auto& [name, token] : named.items()) {
      special_.push_back(token);
      if (name.ends_with("_token")) config_[name] = token.content;
    }
    named_count_ = special_.size();
    const char* extra = config_.contains(kExtra) ? kExtra : kAdditional;
    for (const Json& token : listOf(config_, extra, source_)) special_.push_back(readToken(token, extra, source_));
  }

  void addTokens(Json& list) {
    std::set<std::string> named;
    for (size_t i = 0; i < named_count_; ++i) named.insert(special_[i].content);
    const auto add = [&](Token token) {
      if (token.is_text || named.contains(token.content)) token.special = true;
      if (!token.content.empty()) list.push_back(token.item());
    };
    for (auto& [id, token] : by_id_) add(std::move(token));
    std::set<decltype(std::declval<const Token&>().key())> done;
    for (const Token& token : special_) {
      if (!known_.contains(token.content) && done.insert(token.key()).second) add(token);
    }
  }

  const TokenizerConfigFile& config_file_;
  const TokenizerConfigFile& map_;
  const TokenizerConfigFile& added_;
  Json& tokenizer_;
  Json& config_;
  const std::string& source_;         // for errors
  const char* extra_name_ = kExtra;   // where the config has its extra tokens
  std::vector<std::string> objects_;  // names in the config whose values are objects
  NamedTokens explicit_;              // these values take precedence over those of special_tokens_map.json
  TokensById by_id_;                  // the tokens of added_tokens_decoder, or of the older files
  // Tokens of added_tokens.json whose ids the tokenizer gives to others. They still give their properties to a special
  // token of the same text.
  std::map<std::string, Token> replaced_;
  std::set<std::string> known_;  // contents of the tokenizer's added tokens and of by_id_
  std::vector<Token> special_;   // special tokens: first those with names
  size_t named_count_ = 0;
};

}  // namespace

void addSpecialTokensMap(const TokenizerConfigFile& map, Json& config) {
  if (map.json.is_null() || config.contains(kDecoder)) return;
  if (!map.json.is_object()) fail(ErrorCode::kCorrupt, "{}: expected a JSON object", map.path);
  checkSpecialTokensMap(map);
  for (const auto& [name, value] : map.json.items()) {
    Json& own = config[name];
    if (name == kExtra && value.is_array()) {
      if (!own.is_array()) own = Json::array();
      std::set<std::string> there;
      for (const Json& token : own) there.insert(token.dump());
      for (Json token : value) {
        if (token.is_object()) makeSpecial(token);
        if (there.insert(token.dump()).second) own.push_back(std::move(token));
      }
    } else {
      own = value;
      if (own.is_object() && name != kExtra) makeSpecial(own);
    }
  }
}

void addAddedTokens(const TokenizerConfigFile& added, Json& config) {
  if (added.json.is_null() || config.contains(kDecoder)) return;
  Json decoder = Json::object();
  for (const auto& [id, token] : readAddedTokens(added, {})) decoder[std::to_string(id)] = token.item();
  config[kDecoder] = std::move(decoder);
}

void makeNamedTokensSpecial(Json& config) {
  const auto decoder = config.find(kDecoder);
  if (decoder == config.end() || !decoder->is_object()) return;
  const std::set<std::string> special = specialContents(config, false);
  for (Json& token : *decoder) {
    const auto content = tokenContent(token);
    if (!content || !special.contains(*content) || !token.is_object() || token.value("special", Json()) == true)
      continue;
    token["special"] = true;
    token["normalized"] = false;
  }
}

void addConfiguredTokens(const TokenizerConfigFile& config_file, const TokenizerConfigFile& map,
                         const TokenizerConfigFile& added, Json& tokenizer, Json& config) {
  Reader(config_file, map, added, tokenizer, config).read();
}

}  // namespace chorus
