#include "text/tokenizer/unigram_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/utf8_json.h"

namespace chorus {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 21;
constexpr double kUnknownPenalty = 10;  // subtracted from the lowest score, as in SentencePiece

std::vector<Utf8Text> readTexts(const Json& json, const std::string& source) {
  const auto vocab = json.find("vocab");
  if (vocab == json.end() || !vocab->is_array() || vocab->size() > kMaxPieces) {
    fail(ErrorCode::kInvalidArgument, "{}: 'vocab' must be a list of pieces and scores", source);
  }
  std::vector<Utf8Text> texts;
  texts.reserve(vocab->size());
  for (const Json& item : *vocab) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      fail(ErrorCode::kCorrupt, "{}: item {} of 'vocab' must be [piece, score]", source, texts.size());
    }
    texts.push_back(checkedText(item[0].get<std::string>(), "vocab", source));
    if (texts.back().size() > Vocabulary::kMaxTokenBytes) {
      fail(ErrorCode::kUnsupported, "{}: a piece has {} bytes; the limit is {}", source, texts.back().size(),
           Vocabulary::kMaxTokenBytes);
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
    fail(ErrorCode::kUnsupported, "{}: a Unigram model needs an 'unk_id' for text that its pieces don't cover", source);
  }
  if (jsonGetOr<bool>(json, "byte_fallback", false, source)) bytes_.emplace(vocabulary_);
  indexPieces();
}

void UnigramModel::indexPieces() {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary_.idEnd(); ++id) {
    const std::string& text = vocabulary_.tokenText(id)->bytes();
    if (vocabulary_.tokenId(text) == id) ids.push_back(id);
    longest_ = std::max(longest_, text.size());
  }
  pieces_.emplace(vocabulary_, std::move(ids), 0);
}

void UnigramModel::appendPiece(std::string_view piece, TokenSink& sink) const {
  if (const auto id = tokenId(piece))
    sink.push(*id);
  else if (bytes_ && bytes_->append(piece, sink.all()))
    sink.check();
  else
    sink.push(*unknown_);
}

// Best segmentation up to each position of a word. Scores are needed only as far back as the longest piece reaches, so
// they are kept in a ring; of a segmentation, two bytes per position hold the length of its last piece.
class UnigramModel::Lattice {
 public:
  Lattice(const UnigramModel& model, Utf8View word, EncodeWork& work, TokenSink& sink)
      : model_(model),
        word_(word),
        sink_(sink),
        scores_(work.scratch, std::min(model.longest_, word.size()) + 1),
        steps_(work.scratch, word.size() + 1) {
    work.meter.charge(4 * word.size());
    scores_[0] = 0;
  }

  void reach(size_t from, size_t length, double score, bool unknown) {
    const size_t end = from + length;
    const double sum = scores_[from % scores_.size()] + score;
    double& best = scores_[end % scores_.size()];
    if (steps_[end] != 0 && !(sum > best)) return;
    best = sum;
    steps_[end] = static_cast<uint16_t>(length | (unknown ? kUnknown : 0));
    reached_ = std::max(reached_, end);
  }
  // Largest position that the pieces so far reach.
  size_t reached() const { return reached_; }

  // Every segmentation passes through `at`: emits the tokens before it, except for unknown text at the end, which may
  // continue.
  void cut(size_t at) {
    // Reverse the steps: each one becomes the length of the piece that begins there.
    uint16_t step = steps_[at];
    for (size_t end = at; end > cut_;) {
      const size_t begin = end - (step & ~kUnknown);
      step = std::exchange(steps_[begin], step);
      end = begin;
    }
    for (size_t begin = cut_; begin < at;) {
      const size_t end = begin + (steps_[begin] & ~kUnknown);
      if ((steps_[begin] & kUnknown) == 0) {
        giveUnknown(begin);
        model_.appendPiece(word_.bytes().substr(begin, end - begin), sink_);
        known_ = end;
      }
      begin = end;
    }
    cut_ = at;
  }
  void finish() {
    cut(word_.size());
    giveUnknown(word_.size());
  }

 private:
  static constexpr uint16_t kUnknown = 0x8000;

  // A run of unknown characters is encoded as one piece.
  void giveUnknown(size_t end) {
    if (known_ < end) model_.appendPiece(word_.bytes().substr(known_, end - known_), sink_);
    known_ = end;
  }

  const UnigramModel& model_;
  Utf8View word_;
  TokenSink& sink_;
  ScratchArray<double> scores_;
  ScratchArray<uint16_t> steps_;
  size_t reached_ = 0;
  size_t cut_ = 0;    // tokens are emitted up to here,
  size_t known_ = 0;  // except for unknown text from here on
};

void UnigramModel::encode(Utf8View word, EncodeWork& work, TokenSink& sink) const {
  if (word.empty()) return;
  constexpr uint64_t kWorkPerByteCompared = 16;
  Lattice lattice(*this, word, work, sink);
  for (size_t at = 0; at < word.size();) {
    if (at > 0 && lattice.reached() == at) lattice.cut(at);
    const size_t character = word.characterAt(at).length;
    bool spelled = false;
    const size_t compared = pieces_->eachPrefix(word.bytes().substr(at), [&](int32_t id, size_t length) {
      lattice.reach(at, length, scores_[static_cast<size_t>(id)], id == *unknown_);
      spelled |= length == character;
    });
    work.meter.charge(compared * kWorkPerByteCompared);
    if (!spelled) lattice.reach(at, character, unknown_score_, true);
    at += character;
  }
  lattice.finish();
}

size_t UnigramModel::memoryBytes() const {
  return sizeof(*this) + TokenModel::memoryBytes() + scores_.capacity() * sizeof(double) + pieces_->memoryBytes();
}

}  // namespace chorus
