#include "text/tokenizer/word_models.h"

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr uint64_t kWorkPerByteCompared = 16;

std::string unknownTokenOf(const Json& json, const std::string& source) {
  return jsonGet<std::string>(json, "unk_token", source);
}

int32_t unknownOr(std::optional<int32_t> unknown, Utf8View word) {
  if (!unknown) {
    fail(ErrorCode::kInvalidArgument,
         "the tokenizer has no token for the word '{}', and its vocabulary lacks the unk_token",
         printable(word.bytes()));
  }
  return *unknown;
}

// The tokens that begin with the prefix.
std::vector<int32_t> idsWithPrefix(const Vocabulary& vocabulary, std::string_view prefix) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary.idEnd(); ++id) {
    const Utf8Text* text = vocabulary.tokenText(id);
    if (text != nullptr && text->bytes().starts_with(prefix)) ids.push_back(id);
  }
  return ids;
}

std::string prefixOf(const Json& json, const std::string& source) {
  return jsonGet<std::string>(json, "continuing_subword_prefix", source);
}
}  // namespace

WordLevelModel::WordLevelModel(const Json& json, const std::string& source)
    : TokenModel(Vocabulary::fromModel(json, source)), unknown_(tokenId(unknownTokenOf(json, source))) {}

void WordLevelModel::encode(Utf8View word, EncodeWork& work, TokenSink& sink) const {
  if (word.empty()) return;
  work.meter.charge(word.size());
  const auto id = tokenId(word.bytes());
  sink.push(id ? *id : unknownOr(unknown_, word));
}

WordPieceModel::WordPieceModel(const Json& json, const std::string& source)
    : TokenModel(Vocabulary::fromModel(json, source)),
      unknown_(tokenId(unknownTokenOf(json, source))),
      most_characters_(jsonGet<uint64_t>(json, "max_input_chars_per_word", source)),
      first_(vocabulary_, idsWithPrefix(vocabulary_, ""), 0),
      rest_(vocabulary_, idsWithPrefix(vocabulary_, prefixOf(json, source)), prefixOf(json, source).size()) {}

bool WordPieceModel::appendPieces(std::string_view word, EncodeWork& work, std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < word.size();) {
    int32_t longest = -1;
    size_t end = at;
    const PrefixIndex& index = at == 0 ? first_ : rest_;
    const size_t compared = index.eachPrefix(word.substr(at), [&](int32_t id, size_t length) {
      longest = id;
      end = at + length;
    });
    work.meter.charge(compared * kWorkPerByteCompared);
    if (longest < 0) return false;
    ids.push_back(longest);
    at = end;
  }
  return true;
}

void WordPieceModel::encode(Utf8View word, EncodeWork& work, TokenSink& sink) const {
  if (word.empty()) return;
  work.meter.charge(word.size());
  const size_t characters = countCharacters(word.bytes());
  std::vector<int32_t>& ids = sink.all();
  const size_t before = ids.size();
  sink.reserve(std::min<uint64_t>(characters, most_characters_));
  if (characters > most_characters_ || !appendPieces(word.bytes(), work, ids)) {
    ids.resize(before);
    ids.push_back(unknownOr(unknown_, word));
  }
  sink.check();
}

size_t WordPieceModel::memoryBytes() const {
  return sizeof(*this) + TokenModel::memoryBytes() + first_.memoryBytes() + rest_.memoryBytes();
}

}  // namespace chorus
