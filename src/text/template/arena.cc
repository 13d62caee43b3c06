#include "text/template/arena.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "text/template/template_error.h"

namespace chorus::tmpl {
namespace {

constexpr size_t kMaxBlock = size_t{256} << 10;
// Overhead of a separate block in the allocator and in the list of blocks.
constexpr size_t kBlockOverhead = Arena::kOwnBlocks ? 0 : 32;
}  // namespace

void MemoryLimit::take(size_t bytes) {
  if (bytes > limit_ || used_ > limit_ - bytes)
    tmpl::raise("the template exceeds its limit of {} bytes of text and values", limit_);
  if (meter_ != nullptr) meter_->hold(bytes);
  used_ += bytes;
}

Arena::~Arena() {
  for (void* block : blocks_) std::free(block);
  limit_->giveBack(bytes_);
}

void Arena::addBlock(size_t bytes) {
  blocks_.reserve(blocks_.size() + 1 > blocks_.capacity() ? 2 * blocks_.size() + 4 : blocks_.capacity());
  limit_->take(bytes + kBlockOverhead);
  char* const block = static_cast<char*>(std::malloc(bytes));
  if (block == nullptr) {
    limit_->giveBack(bytes + kBlockOverhead);
    throw std::bad_alloc();
  }
  blocks_.push_back(block);
  bytes_ += bytes + kBlockOverhead;
  begin_ = at_ = block;
  end_ = block + bytes;
}

void* Arena::allocate(size_t bytes, size_t alignment) {
  size_t padding = -reinterpret_cast<uintptr_t>(at_) & (alignment - 1);
  if (at_ == nullptr || bytes > static_cast<size_t>(end_ - at_) || padding > static_cast<size_t>(end_ - at_) - bytes) {
    if (kOwnBlocks || bytes > next_block_ / 2) {
      // Give the object a block of its own; the current block stays in use.
      char *const begin = begin_, *const at = at_, *const end = end_;
      addBlock(bytes);
      char* const own = begin_;
      begin_ = begin, at_ = at, end_ = end;
      return own;
    }
    addBlock(next_block_);
    next_block_ = std::min(kMaxBlock, next_block_ * 2);
    padding = 0;
  }
  char* const out = at_ + padding;
  at_ = out + bytes;
  return out;
}

std::string_view Arena::copy(std::string_view text) {
  if (text.empty()) return {};
  char* const to = static_cast<char*>(allocate(text.size(), 1));
  std::memcpy(to, text.data(), text.size());
  return {to, text.size()};
}

char* Arena::extend(std::string_view text, size_t more) {
  const bool last = !text.empty() && text.data() >= begin_ && text.data() + text.size() == at_;
  if (last && more <= static_cast<size_t>(end_ - at_)) {
    at_ += more;
    return const_cast<char*>(text.data());
  }
  if (more > SIZE_MAX / 4 || text.size() > SIZE_MAX / 4) limit_->take(SIZE_MAX);
  const size_t size = text.size() + more;
  char* to = nullptr;
  if (!kOwnBlocks && last && size > next_block_ / 2) {
    // Leave room for a text that grows repeatedly, so that it is not copied each time.
    addBlock(2 * size);
    to = at_;
    at_ += size;
  } else {
    to = static_cast<char*>(allocate(size, 1));
  }
  if (!text.empty()) std::memcpy(to, text.data(), text.size());
  return to;
}

void Arena::adopt(void* memory, size_t bytes) {
  blocks_.push_back(memory);
  bytes_ += bytes;
}

}  // namespace chorus::tmpl
