// The products of attention: the queries of a tile times a run's keys, or the softmax weights of a tile times the
// values of the runs of a KV split.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/tile_configuration.h"

namespace chorus {

inline constexpr int kAttentionTileRows = 32;  // maximum over all instruction sets

// y[r][c] = x[r] . w[c] for whole panels of 16 columns. The inputs are divided into pieces of kAttentionRun. Each
// element is one chain of multiply-adds (or dot products of input pairs; AMX adds 32 inputs at a time) over ascending
// inputs, so that a result depends neither on the number of rows nor on inputs that are zeros.
struct AttentionProduct {
  TileConfiguration& tiles;  // of the task that calls the kernel
  const void* x = nullptr;   // see AttentionProducts::pack
  int64_t x_stride = 0;      // bytes from a piece to the next
  int64_t inputs = 0;
  // One pointer per piece: for each of its inputs (bfloat16: input pairs), the weights of the columns of all panels.
  // Nothing after the last input (pair) is read.
  const std::byte* const* w = nullptr;
  int64_t input_stride = 0;  // bytes from an input (bfloat16: a pair) to the next
  int64_t panels = 0;
  float* y = nullptr;
  int64_t y_stride = 0;  // floats from a row to the next
  // One pointer per piece: memory to prefetch into L2 while the piece's weights are read, a line of 64 bytes for each
  // line of weights. The array or a pointer in it may be null: nothing to prefetch.
  const std::byte* const* next = nullptr;
};

// The products for one type of the cache on one instruction set.
struct AttentionProducts {
  int max_rows = 0;
  // Packs `count` rows of floats as a tile: pieces of kAttentionRun inputs, [ceil(inputs / kAttentionRun)][count]
  // [kAttentionRun] elements of element_bytes. Elements are the floats themselves, or the floats rounded to the type
  // that the products take. The last piece is padded with zeros. dst must not overlap the rows.
  void (*pack)(const float* const* rows, int count, int64_t inputs, void* dst) = nullptr;
  int element_bytes = sizeof(float);
  void (*run[kAttentionTileRows + 1])(const AttentionProduct& args) = {};  // indexed by the number of rows, from 1

  // Whether adjacent rows of kAttentionRun floats are a tile without packing.
  bool takesFloats() const { return element_bytes == sizeof(float); }
  int64_t tileBytes(int64_t rows, int64_t inputs) const {
    return (inputs + kAttentionRun - 1) / kAttentionRun * kAttentionRun * rows * element_bytes;
  }
};
IsaTable<const AttentionProducts*> attentionProducts(DType dtype);
// The types that a KV cache may have.
std::span<const DType> attentionTypes();

// Each is defined in a file of its own.
IsaTable<const AttentionProducts*> f32AttentionProducts();
IsaTable<const AttentionProducts*> f16AttentionProducts();
IsaTable<const AttentionProducts*> bf16AttentionProducts();
#if defined(__x86_64__)
const AttentionProducts* bf16DotAttentionProducts();   // Isa::kAvx512Bf16
const AttentionProducts* bf16TileAttentionProducts();  // Isa::kAmx
#endif

// AttentionProducts::pack for tiles of floats.
void packAttentionTile(const float* const* rows, int count, int64_t inputs, void* dst);
#if defined(__x86_64__)
// AttentionProducts::pack for tiles of bfloat16. Uses AVX-512 BF16, which turns denormals into zeros.
void packRoundedAttentionTile(const float* const* rows, int count, int64_t inputs, void* dst);
#endif

}  // namespace chorus
