// Budget of one Tokenizer::encode call: work and temporary (scratch) memory, both charged to the caller's meter, and a
// limit on the memory of this call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/work_meter.h"
#include "text/utf8_text.h"

namespace chorus {

// Counts the bytes of memory that stages hold while they run: texts between stages, stacks and tables.
class Scratch {
 public:
  // Limit for one text: kRoom plus kPerByte for each byte of text. kPerByte is chosen so that with the memory of the
  // caller and the result there are at most 16 bytes for each byte of text.
  static constexpr size_t kPerByte = 10;
  static constexpr size_t kRoom = size_t{256} << 10;
  static size_t limitFor(size_t text_bytes) { return kRoom + kPerByte * text_bytes; }

  // The meter must outlive this object.
  Scratch(size_t limit, WorkMeter& meter) : meter_(meter), limit_(limit), left_(limit) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Returns false when the limit is exceeded. Throws what WorkMeter::hold() throws.
  bool tryTake(size_t bytes) {
    if (bytes > left_) return false;
    meter_.hold(bytes);
    left_ -= bytes;
    return true;
  }
  // Throws Error(kInvalidArgument) when the limit is exceeded, and what WorkMeter::hold() throws.
  void take(size_t bytes) {
    if (!tryTake(bytes)) failLimit();
  }
  void giveBack(size_t bytes) {
    meter_.giveBack(bytes);
    left_ += bytes;
  }
  size_t left() const { return left_; }

 private:
  [[noreturn]] void failLimit() const;
  WorkMeter& meter_;
  size_t limit_, left_;
};

struct EncodeWork {
  WorkMeter& meter;
  Scratch& scratch;
};

// A text that a stage builds. Its capacity counts as scratch memory; appended bytes are charged as work.
class ScratchText {
 public:
  explicit ScratchText(EncodeWork& work) : work_(work) {}
  ~ScratchText() { work_.scratch.giveBack(taken_); }
  ScratchText(const ScratchText&) = delete;
  ScratchText& operator=(const ScratchText&) = delete;

  void reserve(size_t bytes) {
    if (bytes > bytes_.capacity()) grow(bytes);
  }
  void append(Utf8View text) {
    makeRoom(text.size());
    bytes_ += text.bytes();
  }
  // Appends U+FFFD if code is not a character.
  void append(uint32_t code);
  // Appends characters[byte] for every byte; each of these characters has at most two bytes.
  void appendMapped(std::string_view bytes, const std::array<Utf8Text, 256>& characters) {
    makeRoom(2 * bytes.size());
    for (const char byte : bytes) bytes_ += characters[static_cast<unsigned char>(byte)].bytes();
  }
  void clear() { bytes_.clear(); }
  // A normalizer notes here that its text lacks the first character of the input, which then is no start of a text for
  // a pre-tokenizer either.
  void loseStart() { lost_start_ = true; }
  bool lostStart() const { return lost_start_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  Utf8View view() const { return Utf8View(bytes_); }
  // The two objects must use the same EncodeWork.
  void swap(ScratchText& other) noexcept {
    bytes_.swap(other.bytes_);
    std::swap(taken_, other.taken_);
    std::swap(lost_start_, other.lost_start_);
  }

 private:
  void makeRoom(size_t more) {
    work_.meter.charge(more);
    if (more > bytes_.capacity() - bytes_.size()) grow(bytes_.size() + more);
  }
  void grow(size_t needed);

  EncodeWork& work_;
  std::string bytes_;
  size_t taken_ = 0;
  bool lost_start_ = false;
};

// An array whose memory counts as scratch.
template <typename T>
class ScratchArray {
 public:
  ScratchArray(Scratch& scratch, size_t count) : scratch_(scratch), bytes_(count * sizeof(T)) {
    scratch_.take(bytes_);
    try {
      items_.resize(count);
    } catch (...) {
      scratch_.giveBack(bytes_);
      throw;
    }
  }
  ~ScratchArray() { scratch_.giveBack(bytes_); }
  ScratchArray(const ScratchArray&) = delete;
  ScratchArray& operator=(const ScratchArray&) = delete;

  T& operator[](size_t i) { return items_[i]; }
  size_t size() const { return items_.size(); }
  T* data() { return items_.data(); }

 private:
  Scratch& scratch_;
  size_t bytes_;
  std::vector<T> items_;
};

}  // namespace chorus
