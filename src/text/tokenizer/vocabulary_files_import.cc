#include "text/tokenizer/vocabulary_files_import.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/config_tokens.h"
#include "text/tokenizer/known_splits.h"
#include "text/unicode.h"
#include "text/utf8_text.h"

namespace chorus {
namespace {

using Defaults = std::array<const char*, std::size(kSpecialTokenNames)>;  // in their order; "" for none
constexpr Defaults kGpt2Tokens{"<|endoftext|>", "<|endoftext|>", "<|endoftext|>", "", "", "", ""};
constexpr Defaults kQwen2Tokens{"", "<|endoftext|>", "<|endoftext|>", "", "<|endoftext|>", "", ""};
constexpr Defaults kRobertaTokens{"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"};
constexpr Defaults kDebertaTokens{"[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
constexpr Defaults kBertTokens{"", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};

enum class Surround { kBosAndEos, kClsAndSep };
struct TokenizerClass {
  std::string_view name;
  const Defaults& tokens;
  Surround surround;
};
constexpr TokenizerClass kByteLevelClasses[] = {
    {"GPT2Tokenizer", kGpt2Tokens, Surround::kBosAndEos},
    {"CodeGenTokenizer", kGpt2Tokens, Surround::kBosAndEos},
    {"Qwen2Tokenizer", kQwen2Tokens, Surround::kBosAndEos},
    {"RobertaTokenizer", kRobertaTokens, Surround::kClsAndSep},
    {"BartTokenizer", kRobertaTokens, Surround::kClsAndSep},
    {"LongformerTokenizer", kRobertaTokens, Surround::kClsAndSep},
    {"LEDTokenizer", kRobertaTokens, Surround::kClsAndSep},
    {"MvpTokenizer", kRobertaTokens, Surround::kClsAndSep},
    {"DebertaTokenizer", kDebertaTokens, Surround::kClsAndSep},
};
constexpr TokenizerClass kWordPieceClasses[] = {
    {"BertTokenizer", kBertTokens, Surround::kClsAndSep},
    {"DistilBertTokenizer", kBertTokens, Surround::kClsAndSep},
    {"ElectraTokenizer", kBertTokens, Surround::kClsAndSep},
    {"ConvBertTokenizer", kBertTokens, Surround::kClsAndSep},
    {"MobileBertTokenizer", kBertTokens, Surround::kClsAndSep},
    {"SqueezeBertTokenizer", kBertTokens, Surround::kClsAndSep},
    {"LayoutLMTokenizer", kBertTokens, Surround::kClsAndSep},
    {"LxmertTokenizer", kBertTokens, Surround::kClsAndSep},
};

// The class that config names; the first one if it names none.
const TokenizerClass& classOf(std::span<const TokenizerClass> classes, const Json& config, const std::string& source) {
  auto name = jsonGetOr<std::string>(config, "tokenizer_class", std::string(classes[0].name), source);
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto it = std::find_if(classes.begin(), classes.end(), [&](const TokenizerClass& c) { return c.name == name; });
  if (it == classes.end()) {
    fail(ErrorCode::kUnsupported, "{}: the tokenizer class '{}' is not supported without a tokenizer.json", source,
         printable(name));
  }
  return *it;
}

// Numbers the special tokens as transformers does, and lists them as added tokens. Every token that is then in config
// has an id in `vocab`, which also gets those that it lacks.
class SpecialTokenList {
 public:
  SpecialTokenList(Json& vocab, Json& config, const Defaults& defaults, const std::string& source) : vocab_(vocab) {
    for (const auto& [token, id] : vocab.items()) {
      if (id.is_number_unsigned()) next_ = std::max(next_, id.get<uint64_t>() + 1);
    }
    readAddedTokens(config, source);
    for (size_t i = 0; i < std::size(kSpecialTokenNames); ++i) {
      if (namedToken(config, kSpecialTokenNames[i], defaults[i])) addNamed(config[kSpecialTokenNames[i]]);
    }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const auto list = config.find(key);
      if (list == config.end() || !list->is_array()) continue;
      for (const Json& token : *list) addNamed(token);
    }
  }
  Json take() && { return std::move(added_); }

 private:
  // The tokens of added_tokens_decoder follow the vocabulary, or are in it. The tokenizer adds them later, when it
  // reads the config; here they only get their places in the vocabulary.
  void readAddedTokens(const Json& config, const std::string& source) {
    const auto list = config.find("added_tokens_decoder");
    if (list == config.end() || !list->is_object()) return;
    std::map<uint64_t, std::string> by_id;
    for (const auto& [key, value] : list->items()) {
      if (const auto content = tokenContent(value)) by_id[static_cast<uint64_t>(decoderId(key, source))] = *content;
    }
    for (const auto& [id, content] : by_id) {
      configured_.insert(content);
      if (vocab_.contains(content)) continue;
      vocab_[content] = id;
      next_ = std::max(next_, id + 1);
    }
  }

  // A token of the config: a text, or an object that also has properties.
  void addNamed(const Json& token) {
    const auto content = tokenContent(token);
    if (!content || content->empty() || !configured_.insert(*content).second) return;
    if (!vocab_.contains(*content)) vocab_[*content] = next_++;
    Json item = token.is_object() ? token : Json{{"content", *content}, {"normalized", false}};
    if (!item.contains("normalized")) item["normalized"] = true;
    item["id"] = vocab_[*content];
    item["special"] = true;
    added_.push_back(std::move(item));
  }

  Json& vocab_;
  Json added_ = Json::array();
  std::set<std::string> configured_;
  uint64_t next_ = 0;
};

Json surrounding(Surround surround, const Json& config, const Json& vocab, const std::string& source) {
  std::vector<std::string> before, after;
  const auto add = [&](std::vector<std::string>& list, const char* key) {
    const auto it = config.find(key);
    const auto token = it == config.end() ? std::nullopt : tokenContent(*it);
    if (token && vocab.contains(*token)) list.push_back(*token);
  };
  if (surround == Surround::kClsAndSep) {
    add(before, "cls_token");
    add(after, "sep_token");
  } else {
    if (jsonGetOr<bool>(config, "add_bos_token", false, source)) add(before, "bos_token");
    if (jsonGetOr<bool>(config, "add_eos_token", false, source)) add(after, "eos_token");
  }
  return templateProcessing(before, after, vocab);
}

std::string_view takeLine(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Json readMerges(std::string_view text, const std::string& source) {
  Json merges = Json::array();
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = takeLine(text);
    if (line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorCode::kCorrupt, "{}: merges.txt: line {} must be two tokens with a space between them", source, number);
    }
    merges.push_back(Json::array({line.substr(0, space), line.substr(space + 1)}));
  }
  return merges;
}

Json readLines(std::string_view text, const std::string& source) {
  if (!Utf8View::check(text)) fail(ErrorCode::kCorrupt, "{}: the file is not UTF-8", source);
  Json vocab = Json::object();
  for (uint64_t id = 0; !text.empty(); ++id) {
    std::string_view line = takeLine(text);
    line.remove_suffix(trailingSpace(line));
    vocab[std::string(line)] = id;  // the last of equal lines counts
  }
  return vocab;
}

}  // namespace

Json importVocabAndMerges(const Json& vocab, std::string_view merges, Json& config, const std::string& source) {
  const TokenizerClass& kind = classOf(kByteLevelClasses, config, source);
  if (!vocab.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: expected an object of tokens and ids", source);
  }
  Json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", readMerges(merges, source)}};
  Json& tokens = model["vocab"];
  Json added = SpecialTokenList(tokens, config, kind.tokens, source).take();
  const bool qwen = kind.name == "Qwen2Tokenizer";
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", jsonGetOr<bool>(config, "add_prefix_space", false, source)},
                      {"use_regex", !qwen}};
  Json json;
  if (qwen) {
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", kQwen2Pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    json["normalizer"] = {{"type", "NFC"}};
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
  } else {
    json["pre_tokenizer"] = bytes;
  }
  json["post_processor"] = surrounding(kind.surround, config, tokens, source);
  json["decoder"] = {{"type", "ByteLevel"}};
  json["added_tokens"] = std::move(added);
  json["model"] = std::move(model);
  return json;
}

Json importVocabText(std::string_view text, Json& config, const std::string& source) {
  const TokenizerClass& kind = classOf(kWordPieceClasses, config, source);
  Json vocab = readLines(text, source);
  Json added = SpecialTokenList(vocab, config, kind.tokens, source).take();
  const auto accents = config.find("strip_accents");
  Json json;
  json["normalizer"] = {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", jsonGetOr<bool>(config, "tokenize_chinese_chars", true, source)},
                        {"strip_accents", accents == config.end() ? Json() : *accents},
                        {"lowercase", jsonGetOr<bool>(config, "do_lower_case", true, source)}};
  json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  json["post_processor"] = surrounding(kind.surround, config, vocab, source);
  json["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  json["added_tokens"] = std::move(added);
  const auto unknown = tokenContent(config.value("unk_token", Json()));
  json["model"] = {{"type", "WordPiece"},
                   {"vocab", std::move(vocab)},
                   {"unk_token", unknown.value_or("[UNK]")},
                   {"continuing_subword_prefix", "##"},
                   {"max_input_chars_per_word", 100}};
  return json;
}

}  // namespace chorus
