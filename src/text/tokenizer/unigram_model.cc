#include "text/tokenizer/unigram_model.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 21;
constexpr size_t kMaxPieceBytes = 4096;
constexpr double kUnknownPenalty = 10;  // below the lowest score, as sentencepiece has it

std::vector<std::string> readTexts(const Json& json, const std::string& source) {
  const auto vocab = json.find("vocab");
  if (vocab == json.end() || !vocab->is_array() || vocab->size() > kMaxPieces) {
    fail(ErrorCode::kInvalidArgument, "{}: 'vocab' must be a list of pieces and scores", source);
  }
  std::vector<std::string> texts;
  texts.reserve(vocab->size());
  for (const Json& item : *vocab) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      fail(ErrorCode::kCorrupt, "{}: item {} of 'vocab' must be [piece, score]", source, texts.size());
    }
    texts.push_back(item[0].get<std::string>());
    if (texts.back().size() > kMaxPieceBytes) {
      fail(ErrorCode::kUnsupported, "{}: a piece of {} bytes, more than the limit of {}", source, texts.back().size(),
           kMaxPieceBytes);
    }
  }
  return texts;
}
}  // namespace

UnigramModel::UnigramModel(const Json& json, const std::string& source)
    : TokenModel(Vocabulary::fromList(readTexts(json, source))) {
  double lowest = std::numeric_limits<double>::infinity();
  for (const Json& item : json["vocab"]) {
    scores_.push_back(item[1].get<double>());
    lowest = std::min(lowest, scores_.back());
  }
  unknown_score_ = lowest - kUnknownPenalty;
  if (const auto id = json.find("unk_id"); id != json.end() && !id->is_null()) {
    unknown_ = jsonGet<int32_t>(json, "unk_id", source);
    if (*unknown_ < 0 || static_cast<size_t>(*unknown_) >= scores_.size()) {
      fail(ErrorCode::kCorrupt, "{}: 'unk_id' {} is not in 'vocab'", source, *unknown_);
    }
  } else {
    fail(ErrorCode::kUnsupported, "{}: a Unigram model needs an 'unk_id' for what its pieces don't spell", source);
  }
  if (jsonGetOr<bool>(json, "byte_fallback", false, source)) bytes_.emplace(vocabulary_);
  sortPieces();
}

void UnigramModel::sortPieces() {
  for (int32_t id = 0; id < vocabulary_.idEnd(); ++id) {
    const std::string& text = *vocabulary_.tokenText(id);
    if (!text.empty() && vocabulary_.tokenId(text) == id) sorted_.push_back(id);
  }
  const auto textOf = [&](int32_t id) -> const std::string& { return *vocabulary_.tokenText(id); };
  std::sort(sorted_.begin(), sorted_.end(), [&](int32_t a, int32_t b) { return textOf(a) < textOf(b); });
  for (size_t i = 0; i < sorted_.size(); ++i) {
    auto& range = by_first_byte_[static_cast<unsigned char>(textOf(sorted_[i])[0])];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
  }
}

template <typename Found>
void UnigramModel::eachPrefix(std::string_view text, Found&& found) const {
  auto [low, high] = by_first_byte_[static_cast<unsigned char>(text[0])];
  const auto textOf = [&](size_t i) -> const std::string& { return *vocabulary_.tokenText(sorted_[i]); };
  for (size_t length = 1; low < high; ++length) {
    // All of [low, high) begin with the first length bytes of text; the shortest, if any, is those bytes.
    if (textOf(low).size() == length) {
      found(sorted_[low], length);
      ++low;
    }
    if (length == text.size()) return;
    const auto next = static_cast<unsigned char>(text[length]);
    const auto begin = sorted_.begin();
    const auto byteOf = [&](int32_t id) { return static_cast<unsigned char>((*vocabulary_.tokenText(id))[length]); };
    const auto from =
        std::lower_bound(begin + static_cast<std::ptrdiff_t>(low), begin + static_cast<std::ptrdiff_t>(high), next,
                         [&](int32_t id, unsigned char byte) { return byteOf(id) < byte; });
    const auto to = std::upper_bound(from, begin + static_cast<std::ptrdiff_t>(high), next,
                                     [&](unsigned char byte, int32_t id) { return byte < byteOf(id); });
    low = static_cast<size_t>(from - begin);
    high = static_cast<size_t>(to - begin);
  }
}

void UnigramModel::appendPiece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (const auto id = tokenId(piece))
    ids.push_back(*id);
  else if (!bytes_ || !bytes_->append(piece, ids))
    ids.push_back(*unknown_);
}

void UnigramModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  struct Node {
    double score = 0;
    size_t begin = std::string_view::npos;  // of the best last piece that ends here
    int32_t id = 0;
  };
  std::vector<Node> ends(word.size() + 1);
  for (size_t at = 0; at < word.size();) {
    const double before = ends[at].score;
    const auto reach = [&](size_t length, double score, int32_t id) {
      Node& node = ends[at + length];
      if (node.begin == std::string_view::npos || before + score > node.score) node = {before + score, at, id};
    };
    const auto character = static_cast<size_t>(utf8Length(word[at]));
    bool spelled = false;
    eachPrefix(word.substr(at), [&](int32_t id, size_t length) {
      reach(length, scores_[static_cast<size_t>(id)], id);
      spelled |= length == character;
    });
    if (!spelled) reach(character, unknown_score_, *unknown_);
    at += character;
  }
  // Backwards; what the model doesn't know in a row is one piece.
  std::vector<std::string_view> pieces;
  for (size_t end = word.size(); end > 0;) {
    size_t begin = ends[end].begin;
    if (ends[end].id == *unknown_) {
      while (begin > 0 && ends[begin].id == *unknown_) begin = ends[begin].begin;
    }
    pieces.push_back(word.substr(begin, end - begin));
    end = begin;
  }
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) appendPiece(*it, ids);
}

}  // namespace chorus
