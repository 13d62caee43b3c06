#include "text/tokenizer/encode_work.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {

void Scratch::failLimit() const {
  fail(ErrorCode::kInvalidArgument, "the tokenizer needs more than {} bytes of memory for a text of {} bytes", limit_,
       (limit_ - kRoom) / kPerByte);
}

void ScratchText::append(uint32_t code) {
  makeRoom(4);
  appendUtf8(bytes_, isCharacterCode(code) ? code : 0xFFFD);
}

// Doubles the capacity while memory is plentiful, then grows by a quarter of what is left, because the old and the new
// bytes are held at once.
void ScratchText::grow(size_t needed) {
  const size_t wanted = std::max(needed, std::min(bytes_.capacity() * 2, needed + work_.scratch.left() / 4));
  work_.scratch.take(wanted);
  std::string bigger;
  try {
    bigger.reserve(wanted);
  } catch (...) {
    work_.scratch.giveBack(wanted);
    throw;
  }
  bigger += bytes_;
  bytes_.swap(bigger);
  work_.scratch.giveBack(taken_);
  taken_ = wanted;
}

}  // namespace chorus
