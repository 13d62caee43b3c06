#include "text/tokenizer/rank_files_import.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/config_tokens.h"
#include "text/tokenizer/known_splits.h"
#include "text/tokenizer/token_model.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// The model looks for every way to cut a token, so the cost of a token grows with the square of its length.
constexpr size_t kMaxTokenBytes = 512;
constexpr uint64_t kMaxRank = uint64_t{1} << 21;
// Special tokens of a tekken.json, for which the file needs no bytes of its own. Known files have 14 to 1,000.
constexpr uint64_t kMaxTekkenSpecial = uint64_t{1} << 14;
constexpr uint64_t kLlama4Ranks = 200000;

// tiktoken's patterns of cl100k_base and o200k_base. Possessive repetitions are written as greedy ones, which match the
// same in these places.
constexpr std::string_view kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The tokens of a file: byte strings with ranks, and special tokens.
class RankedVocabulary {
 public:
  explicit RankedVocabulary(const std::string& source) : source_(source) {}

  void add(std::string_view bytes, uint64_t id) {
    if (bytes.empty() || bytes.size() > kMaxTokenBytes) {
      fail(ErrorCode::kUnsupported, "{}: a token has {} bytes; it must have 1 to {}", source_, bytes.size(),
           kMaxTokenBytes);
    }
    enter(byteLevelText(bytes).bytes(), id);
  }
  void addSpecial(const std::string& name, uint64_t id) {
    enter(name, id);
    added_.push_back({{"id", id}, {"content", name}, {"special", true}, {"normalized", false}});
  }
  // Enters a token whose properties the config has.
  void addConfigured(const std::string& name, uint64_t id) {
    if (!has(name)) enter(name, id);
  }
  bool has(const std::string& name) const { return vocab_.contains(name); }

  // Every text is made of bytes, so each byte must be a token.
  void checkBytes() const {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      if (!has(byteLevelText(std::string_view(&c, 1)).bytes())) {
        fail(ErrorCode::kCorrupt, "{}: no token is the single byte 0x{:02X}", source_, byte);
      }
    }
  }

  struct Ends {
    bool begin_by_default;
    std::string bos, eos;
  };
  Json document(std::string_view pattern, Json normalizer, const Ends& ends, Json& config) && {
    const auto bos = namedToken(config, "bos_token", has(ends.bos) ? ends.bos : "");
    const auto eos = namedToken(config, "eos_token", has(ends.eos) ? ends.eos : "");
    std::vector<std::string> before, after;
    if (bos && has(*bos) && jsonGetOr<bool>(config, "add_bos_token", ends.begin_by_default, source_)) {
      before.push_back(*bos);
    }
    if (eos && has(*eos) && jsonGetOr<bool>(config, "add_eos_token", false, source_)) after.push_back(*eos);
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    Json json;
    json["normalizer"] = std::move(normalizer);
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
    json["post_processor"] = templateProcessing(before, after, vocab_);
    json["decoder"] = {{"type", "ByteLevel"}};
    json["added_tokens"] = std::move(added_);
    json["model"] = {{"type", kRankedModel}, {"vocab", std::move(vocab_)}};
    return json;
  }

 private:
  void enter(const std::string& token, uint64_t id) {
    if (!vocab_.emplace(token, id).second) {
      fail(ErrorCode::kCorrupt, "{}: the token '{}' occurs twice", source_, printable(token));
    }
  }

  const std::string& source_;
  Json vocab_ = Json::object();
  Json added_ = Json::array();
};

struct RankedToken {
  std::string bytes;
  uint64_t rank;
};

// Reads "TOKEN RANK". Nullopt for anything else.
std::optional<RankedToken> readLine(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos) return std::nullopt;
  auto bytes = decodeBase64(line.substr(0, space));
  const std::string_view number = line.substr(space + 1);
  uint64_t rank = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
  if (!bytes || error != std::errc() || end != number.data() + number.size() || rank >= kMaxRank) return std::nullopt;
  return RankedToken{std::move(*bytes), rank};
}

// The tokens of a whole file; returns the largest rank plus one.
uint64_t readRanks(std::string_view text, RankedVocabulary& vocabulary, const std::string& source) {
  uint64_t end = 0;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line == "\r") continue;
    const auto token = readLine(line);
    if (!token) fail(ErrorCode::kCorrupt, "{}: line {} must be a token in base64 and a rank", source, number);
    vocabulary.add(token->bytes, token->rank);
    end = std::max(end, token->rank + 1);
  }
  vocabulary.checkBytes();
  return end;
}

// Special tokens with their ids, relative to the first id after the ranks.
using NamedIds = std::vector<std::pair<std::string, uint64_t>>;

NamedIds llama3Tokens() {
  NamedIds tokens;
  const auto add = [&](std::string name) { tokens.emplace_back(std::move(name), tokens.size()); };
  const auto addReserved = [&](int first, int last) {
    for (int i = first; i <= last; ++i) add(fmt::format("<|reserved_special_token_{}|>", i));
  };
  constexpr int kLastReserved = 250;
  add("<|begin_of_text|>"), add("<|end_of_text|>"), addReserved(0, 3);
  add("<|start_header_id|>"), add("<|end_header_id|>"), addReserved(4, 4);
  add("<|eot_id|>"), addReserved(5, kLastReserved);
  return tokens;
}

NamedIds qwenTokens() {
  NamedIds tokens{{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}};
  constexpr int kExtras = 205;
  for (int i = 0; i < kExtras; ++i) tokens.emplace_back(fmt::format("<|extra_{}|>", i), tokens.size());
  return tokens;
}

NamedIds cl100kTokens() {
  return {{"<|endoftext|>", 1},
          {"<|fim_prefix|>", 2},
          {"<|fim_middle|>", 3},
          {"<|fim_suffix|>", 4},
          {"<|endofprompt|>", 20}};
}

struct TiktokenFile {
  std::string_view name;
  std::string_view pattern;
  const char* normalizer;  // null: none
  NamedIds (*tokens)();
  bool begins;
  const char *bos, *eos;
};
constexpr TiktokenFile kTiktokenFiles[] = {
    {"tokenizer.model", kLlama3Pattern, nullptr, llama3Tokens, true, "<|begin_of_text|>", "<|end_of_text|>"},
    {"tiktoken.model", kLlama3Pattern, nullptr, llama3Tokens, true, "<|begin_of_text|>", "<|end_of_text|>"},
    {"qwen.tiktoken", kQwen2Pattern, "NFC", qwenTokens, false, "", "<|endoftext|>"},
    {"r50k_base.tiktoken", kGpt2Pattern, nullptr, [] { return NamedIds{{"<|endoftext|>", 0}}; }, false, "",
     "<|endoftext|>"},
    {"cl100k_base.tiktoken", kCl100kPattern, nullptr, cl100kTokens, false, "", "<|endoftext|>"},
    {"o200k_base.tiktoken", kO200kPattern, nullptr,
     [] { return NamedIds{{"<|endoftext|>", 1}, {"<|endofprompt|>", 20}}; }, false, "", "<|endoftext|>"},
};

// The tokens of a config's added_tokens_decoder ({id: token}); false if it has none.
bool addConfiguredTokens(const Json& config, RankedVocabulary& vocabulary) {
  const auto list = config.find("added_tokens_decoder");
  if (list == config.end() || !list->is_object() || list->empty()) return false;
  for (const auto& [key, value] : list->items()) {
    uint64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const auto content = tokenContent(value);
    // A wrong key is refused when the config is read.
    if (content && error == std::errc() && end == key.data() + key.size() && id < kMaxRank) {
      vocabulary.addConfigured(*content, id);
    }
  }
  return true;
}

// The special tokens of tekken files that do not list theirs.
constexpr const char* kTekkenTokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "[INST]",
                                         "[/INST]",
                                         "[AVAILABLE_TOOLS]",
                                         "[/AVAILABLE_TOOLS]",
                                         "[TOOL_RESULTS]",
                                         "[/TOOL_RESULTS]",
                                         "[TOOL_CALLS]",
                                         "[IMG]",
                                         "<pad>",
                                         "[IMG_BREAK]",
                                         "[IMG_END]",
                                         "[PREFIX]",
                                         "[MIDDLE]",
                                         "[SUFFIX]",
                                         "[SYSTEM_PROMPT]",
                                         "[/SYSTEM_PROMPT]",
                                         "[TOOL_CONTENT]"};

std::vector<std::string> tekkenTokens(const Json& tekken, uint64_t count, const std::string& source) {
  std::vector<std::string> names(count);
  const auto list = tekken.find("special_tokens");
  const auto place = [&](uint64_t rank, std::string name) {
    if (rank >= count || name.empty() || !names[rank].empty()) {
      fail(ErrorCode::kCorrupt, "{}: special_tokens: the rank {} is taken, or not below default_num_special_tokens {}",
           source, rank, count);
    }
    names[rank] = std::move(name);
  };
  if (list == tekken.end() || list->is_null()) {
    uint64_t rank = 0;
    for (const char* name : kTekkenTokens) place(rank++, name);
  } else if (!list->is_array()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'special_tokens' must be a list", source);
  } else {
    for (const Json& token : *list) {
      place(jsonGet<uint64_t>(token, "rank", source), jsonGet<std::string>(token, "token_str", source));
    }
  }
  for (uint64_t rank = 0; rank < count; ++rank) {
    if (names[rank].empty()) names[rank] = fmt::format("<SPECIAL_{}>", rank);
  }
  return names;
}

}  // namespace

bool isTiktokenFile(std::string_view text) { return readLine(text.substr(0, text.find('\n'))).has_value(); }

Json importTiktoken(std::string_view text, std::string_view name, Json& config, const std::string& source) {
  const auto* family = std::find_if(std::begin(kTiktokenFiles), std::end(kTiktokenFiles),
                                    [&](const TiktokenFile& candidate) { return candidate.name == name; });
  if (family == std::end(kTiktokenFiles)) {
    fail(ErrorCode::kUnsupported, "{}: the pattern of this tiktoken file is not known", source);
  }
  RankedVocabulary vocabulary(source);
  const uint64_t ranks = readRanks(text, vocabulary, source);
  if (!addConfiguredTokens(config, vocabulary)) {
    if (family->tokens == llama3Tokens && ranks == kLlama4Ranks) {
      fail(ErrorCode::kUnsupported, "{}: a tiktoken file of Llama 4; give a directory with its tokenizer.json", source);
    }
    for (const auto& [token, id] : family->tokens()) vocabulary.addSpecial(token, ranks + id);
  }
  Json normalizer;
  if (family->normalizer != nullptr) normalizer = {{"type", family->normalizer}};
  return std::move(vocabulary)
      .document(family->pattern, std::move(normalizer), {family->begins, family->bos, family->eos}, config);
}

Json importTekken(const Json& tekken, Json& config, const std::string& source) {
  const auto found = tekken.find("config");
  if (found == tekken.end() || !found->is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'config' must be an object", source);
  }
  const Json& settings = *found;
  const auto pattern = jsonGet<std::string>(settings, "pattern", source);
  const auto list = tekken.find("vocab");
  if (list == tekken.end() || !list->is_array()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'vocab' must be a list of tokens", source);
  }
  const auto special = jsonGet<uint64_t>(settings, "default_num_special_tokens", source);
  const auto size = jsonGet<uint64_t>(settings, "default_vocab_size", source);
  if (special > kMaxTekkenSpecial) {
    fail(ErrorCode::kCorrupt, "{}: default_num_special_tokens {} is more than {}", source, special, kMaxTekkenSpecial);
  }
  if (size < special || size - special > list->size()) {
    fail(ErrorCode::kCorrupt,
         "{}: default_vocab_size {} must be at least default_num_special_tokens {}, and at most that and the {} tokens "
         "of 'vocab'",
         source, size, special, list->size());
  }
  RankedVocabulary vocabulary(source);
  for (uint64_t rank = 0; rank < size - special; ++rank) {
    const Json& token = (*list)[rank];
    const auto bytes = decodeBase64(jsonGet<std::string>(token, "token_bytes", source));
    if (!bytes || jsonGet<uint64_t>(token, "rank", source) != rank) {
      fail(ErrorCode::kCorrupt, "{}: token {} of 'vocab' has another rank, or its bytes are not base64", source, rank);
    }
    vocabulary.add(*bytes, special + rank);
  }
  vocabulary.checkBytes();
  const auto names = tekkenTokens(tekken, special, source);
  for (uint64_t rank = 0; rank < special; ++rank) vocabulary.addSpecial(names[rank], rank);
  for (const auto& [key, token] : {std::pair("unk_token", "<unk>"), {"pad_token", "<pad>"}}) {
    if (vocabulary.has(token)) namedToken(config, key, token);
  }
  return std::move(vocabulary).document(pattern, Json(), {true, "<s>", "</s>"}, config);
}

}  // namespace chorus
