#include "formats/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/git_lfs.h"

namespace chorus {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 21;
constexpr size_t kMaxPieceBytes = 4096;

// Iterates over the fields of one protobuf message in file order.
class Fields {
 public:
  Fields(std::string_view bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  // Reads the next field; returns false at the end. number() and the accessor of the field's type then describe it.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = readVarint();
    number_ = key >> 3;
    wire_ = static_cast<int>(key & 7);
    if (number_ == 0) corrupt("a field has the number 0");
    switch (wire_) {
      case 0:
        integer_ = readVarint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        text_ = take(readVarint());
        break;
      case 5:
        text_ = take(4);
        break;
      default:
        corrupt("a field has an unknown wire type");
    }
    return true;
  }
  uint64_t number() const { return number_; }
  uint64_t integer() const { return expect(0), integer_; }
  bool boolean() const { return integer() != 0; }
  std::string_view text() const { return expect(2), text_; }
  float real() const {
    expect(5);
    uint32_t bits = 0;
    for (size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(text_[i]);
    return std::bit_cast<float>(bits);
  }
  // Protobuf writes a negative int32 as a 64-bit varint.
  int32_t signedInteger() const {
    const auto value = static_cast<int64_t>(integer());
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
      corrupt("an integer doesn't fit 32 bits");
    }
    return static_cast<int32_t>(value);
  }
  [[noreturn]] void corrupt(const char* what) const {
    fail(ErrorCode::kCorrupt, "{}: not a sentencepiece model: {}", source_, what);
  }

 private:
  void expect(int wire) const {
    if (wire_ != wire) corrupt("a field has the wrong type");
  }
  uint64_t readVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) corrupt("it ends inside a number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    corrupt("a number has more than 64 bits");
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) corrupt("a field reaches beyond the end");
    const auto out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }

  std::string_view bytes_, source_;
  size_t at_ = 0;
  uint64_t number_ = 0, integer_ = 0;
  int wire_ = 0;
  std::string_view text_;
};

SentencePiece readPiece(std::string_view bytes, std::string_view source) {
  SentencePiece piece;
  Fields fields(bytes, source);
  while (fields.next()) {
    switch (fields.number()) {
      case 1:
        piece.text = fields.text();
        break;
      case 2:
        piece.score = fields.real();
        break;
      case 3: {
        const uint64_t type = fields.integer();
        if (type < 1 || type > 6) fields.corrupt("a piece has an unknown type");
        piece.type = static_cast<SentencePiece::Type>(type);
        break;
      }
      default:
        break;
    }
  }
  if (piece.text.empty() || piece.text.size() > kMaxPieceBytes) fields.corrupt("a piece is empty or too long");
  if (!std::isfinite(piece.score)) fields.corrupt("a piece's score is not finite");
  return piece;
}

void readTrainerSpec(std::string_view bytes, std::string_view source, SentencePieceModel& model) {
  Fields fields(bytes, source);
  while (fields.next()) {
    switch (fields.number()) {
      case 3: {
        const uint64_t kind = fields.integer();
        if (kind < 1 || kind > 4) fields.corrupt("an unknown model type");
        model.kind = static_cast<SentencePieceModel::Kind>(kind);
        break;
      }
      case 24:
        model.whitespace_as_suffix = fields.boolean();
        break;
      case 35:
        model.byte_fallback = fields.boolean();
        break;
      case 40:
        model.unk_id = fields.signedInteger();
        break;
      case 41:
        model.bos_id = fields.signedInteger();
        break;
      case 42:
        model.eos_id = fields.signedInteger();
        break;
      case 43:
        model.pad_id = fields.signedInteger();
        break;
      default:
        break;
    }
  }
}

void readNormalizerSpec(std::string_view bytes, std::string_view source, SentencePieceModel& model) {
  Fields fields(bytes, source);
  while (fields.next()) {
    switch (fields.number()) {
      case 2:
        model.precompiled_charsmap = fields.text();
        break;
      case 3:
        model.add_dummy_prefix = fields.boolean();
        break;
      case 4:
        model.remove_extra_whitespaces = fields.boolean();
        break;
      case 5:
        model.escape_whitespaces = fields.boolean();
        break;
      default:
        break;
    }
  }
}

}  // namespace

SentencePieceModel parseSentencePieceModel(std::span<const std::byte> bytes, std::string_view source) {
  refuseGitLfsPointer(bytes, source);
  SentencePieceModel model;
  Fields fields({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, source);
  while (fields.next()) {
    switch (fields.number()) {
      case 1:
        if (model.pieces.size() == kMaxPieces) fields.corrupt("it has too many pieces");
        model.pieces.push_back(readPiece(fields.text(), source));
        break;
      case 2:
        readTrainerSpec(fields.text(), source, model);
        break;
      case 3:
        readNormalizerSpec(fields.text(), source, model);
        break;
      default:
        break;
    }
  }
  if (model.pieces.empty()) fields.corrupt("it has no pieces");
  const auto size = static_cast<int32_t>(model.pieces.size());
  for (const int32_t id : {model.unk_id, model.bos_id, model.eos_id, model.pad_id}) {
    if (id >= size) fields.corrupt("a special token's id is beyond the pieces");
  }
  return model;
}

}  // namespace chorus
