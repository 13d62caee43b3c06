// The products of attention: a tile of rows times a run's keys, or the weights of the tile times the run's values.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/cpu/isa_table.h"

namespace chorus {

inline constexpr int kAttentionTileRows = 16;  // of any instruction set, at most

// y[r][c] = factors[r] y[r][c] + x[r] . w[c] for whole panels of 16 columns, each element one chain of multiply-adds
// (or dot products of input pairs; AMX adds 32 inputs at a time) over ascending inputs, so that a result depends
// neither on the number of rows nor on inputs that are zeros.
struct AttentionProduct {
  const void* x = nullptr;  // see AttentionProducts::pack
  int64_t inputs = 0;
  const std::byte* w = nullptr;  // panels side by side, each two inputs of bfloat16 or one of another type
  int64_t input_stride = 0;      // bytes from an input (bfloat16: a pair) to the next; nothing past the last is read
  int64_t panels = 0;
  float* y = nullptr;
  int64_t y_stride = 0;             // floats from a row to the next
  const float* factors = nullptr;   // of every row; null: y is only written
  const std::byte* next = nullptr;  // prefetched into the second cache, line by line as w is read; null: nothing
};

// Those for one type of the cache on one instruction set.
struct AttentionProducts {
  int max_rows = 0;
  // `count` rows of floats as a tile: pieces of kAttentionRun inputs, [ceil(inputs / kAttentionRun)][count]
  // [kAttentionRun] elements of element_bytes, floats as they are or rounded to what the products take; the last piece
  // is padded with zeros. dst must not overlap the rows.
  void (*pack)(const float* const* rows, int count, int64_t inputs, void* dst) = nullptr;
  int element_bytes = sizeof(float);
  void (*run[kAttentionTileRows + 1])(const AttentionProduct& args) = {};  // by the number of rows, from 1

  // Rows of kAttentionRun floats side by side are a tile as they stand.
  bool takesFloats() const { return element_bytes == sizeof(float); }
  int64_t tileBytes(int64_t rows, int64_t inputs) const {
    return (inputs + kAttentionRun - 1) / kAttentionRun * kAttentionRun * rows * element_bytes;
  }
};
IsaTable<const AttentionProducts*> attentionProducts(DType dtype);
// The types that a cache may have.
std::span<const DType> attentionTypes();

// One file each.
IsaTable<const AttentionProducts*> f32AttentionProducts();
IsaTable<const AttentionProducts*> f16AttentionProducts();
IsaTable<const AttentionProducts*> bf16AttentionProducts();
#if defined(__x86_64__)
const AttentionProducts* bf16DotAttentionProducts();   // Isa::kAvx512Bf16
const AttentionProducts* bf16TileAttentionProducts();  // Isa::kAmx
#endif

// A tile of floats.
void packAttentionTile(const float* const* rows, int count, int64_t inputs, void* dst);
#if defined(__x86_64__)
// A tile of bfloat16, by AVX-512 BF16: denormals become zeros.
void packRoundedAttentionTile(const float* const* rows, int count, int64_t inputs, void* dst);
#endif

}  // namespace chorus
