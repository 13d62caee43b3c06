// Layout of one layer's KV cache: blocks of a fixed number of tokens, addressed by block id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace chorus {

// Positions of a run, whose keys and values are adjacent in a block; runs are aligned to position 0.
inline constexpr int32_t kKvRun = 64;

// The layout inside a block is private to the backend. The CPU's block has the order in which its products read it: for
// every KV head, for every run of kKvRun positions (or of all positions of a smaller block), keys transposed
// [head_size][positions], then values [positions][head_size], all of type `dtype`. In bfloat16 two terms of a sum are
// adjacent, as in a packed weight:
//   - keys: [head_size / 2][positions][2] if head_size is even;
//   - values: [positions / 2][head_size][2] unless a block is one token.
struct KvLayer {
  void* base = nullptr;      // of block 0 of this layer, device memory
  int64_t block_stride = 0;  // bytes from one block to the next
  DType dtype = DType::kFloat32;
  int32_t num_kv_heads = 0;
  int32_t head_size = 0;
  int32_t tokens_per_block = 0;  // a power of two
  int32_t group = 0;             // its KV group: index into SequenceSpan::block_tables
};

// A copy that is to be made: the keys and values of block `from` to block `to`.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

inline int64_t kvBlockBytes(const KvLayer& kv) {
  return 2 * int64_t{kv.num_kv_heads} * kv.head_size * kv.tokens_per_block * static_cast<int64_t>(dtypeSize(kv.dtype));
}

// The CPU's layout: number of adjacent dimensions of a key, or of adjacent positions of a value.
inline int64_t keysTogether(const KvLayer& kv) { return kv.dtype == DType::kBFloat16 && kv.head_size % 2 == 0 ? 2 : 1; }
inline int64_t valuesTogether(const KvLayer& kv) {
  return kv.dtype == DType::kBFloat16 && kv.tokens_per_block % 2 == 0 ? 2 : 1;
}

// kvBlock is the block that holds a position; keyIndex and valueIndex are the elements in it that hold dimension d of
// its key or value.
inline std::byte* kvBlock(const KvLayer& kv, std::span<const int32_t> block_table, int64_t position) {
  const int32_t block = block_table[static_cast<size_t>(position / kv.tokens_per_block)];
  return static_cast<std::byte*>(kv.base) + block * kv.block_stride;
}
// Positions per run: kKvRun, or all of a smaller block.
inline int64_t kvRunPositions(const KvLayer& kv) { return kv.tokens_per_block < kKvRun ? kv.tokens_per_block : kKvRun; }
// Index of the first key element of the run that holds `position`; the run's values follow its keys.
inline int64_t kvRunIndex(const KvLayer& kv, int64_t kv_head, int64_t position) {
  const int64_t run = position % kv.tokens_per_block / kvRunPositions(kv);
  return (kv_head * kv.tokens_per_block + run * kvRunPositions(kv)) * 2 * kv.head_size;
}
inline size_t keyIndex(const KvLayer& kv, int64_t kv_head, int64_t position, int64_t d) {
  const int64_t together = keysTogether(kv), positions = kvRunPositions(kv);
  return static_cast<size_t>(kvRunIndex(kv, kv_head, position) + d / together * together * positions +
                             position % positions * together + d % together);
}
inline size_t valueIndex(const KvLayer& kv, int64_t kv_head, int64_t position, int64_t d) {
  const int64_t together = valuesTogether(kv), slot = position % kvRunPositions(kv);
  return static_cast<size_t>(kvRunIndex(kv, kv_head, position) + kvRunPositions(kv) * kv.head_size +
                             slot / together * together * kv.head_size + d * together + slot % together);
}

}  // namespace chorus
