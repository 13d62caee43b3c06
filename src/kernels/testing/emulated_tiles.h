// AMX's tile registers in plain C++, for tests on any machine: TILELOADD, TILESTORED, TILEZERO, LDTILECFG and TDPBF16PS
// as Intel's manual (SDM volume 2) defines them, each as a function on arrays. Uses that the processor refuses (#UD,
// #GP) throw std::logic_error.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include "kernels/linear/panel_layout.h"

#include "kernels/linear/tile_block-inl.h"

namespace chorus::tiles {

struct EmulatedTiles {
  struct Register {
    std::byte bytes[kRegisterRows * kRowBytes];
    float& single(int row, int col) { return *(reinterpret_cast<float*>(bytes + row * kRowBytes) + col); }
    // Element `half` of the pair at `col`; denormals count as zeros.
    float half(int row, int col, int half) const {
      uint16_t bits;
      std::memcpy(&bits, bytes + row * kRowBytes + col * 4 + half * 2, sizeof bits);
      const uint32_t wide = uint32_t{bits} << 16;
      float value;
      std::memcpy(&value, &wide, sizeof value);
      return flush(value);
    }
  };
  struct State {
    Palette palette;
    bool configured = false;
    alignas(64) Register tile[8];
  };
  // The registers of the whole process: tests use them on one thread.
  static State& state() {
    static State now;
    return now;
  }
  static void require(bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  }
  static float flush(float value) {
    return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
  }

  // Argument for kernels. configure() does not use it, because it would configure the processor's registers.
  inline static TileConfiguration unused;
  static void configure(TileConfiguration&, const void* memory) {
    Palette palette;
    std::memcpy(&palette, memory, sizeof palette);
    require(palette.palette == 1 && palette.start_row == 0, "LDTILECFG: the palette must be 1 and the start row 0");
    for (int i = 0; i < 16; ++i) {
      const bool used = palette.rows[i] != 0 || palette.row_bytes[i] != 0;
      require(!used || i < 8, "LDTILECFG: more than eight registers configured");
      require(palette.rows[i] <= 16 && palette.row_bytes[i] <= 64, "LDTILECFG: larger than a register");
      require((palette.rows[i] == 0) == (palette.row_bytes[i] == 0), "LDTILECFG: rows without bytes");
    }
    State& s = state();
    s.palette = palette;
    s.configured = true;
    std::memset(s.tile, 0, sizeof s.tile);
  }
  template <int kTile>
  static Register& used() {
    State& s = state();
    require(s.configured && s.palette.rows[kTile] > 0, "the register is not configured");
    return s.tile[kTile];
  }
  template <int kTile>
  static void load(const void* memory, int64_t stride) {
    Register& tile = used<kTile>();
    std::memset(&tile, 0, sizeof tile);
    for (int r = 0; r < state().palette.rows[kTile]; ++r) {
      std::memcpy(tile.bytes + r * kRowBytes, static_cast<const std::byte*>(memory) + r * stride,
                  state().palette.row_bytes[kTile]);
    }
  }
  template <int kTile>
  static void loadOnce(const void* memory, int64_t stride) {
    load<kTile>(memory, stride);
  }
  template <int kTile>
  static void store(void* memory, int64_t stride) {
    const Register& tile = used<kTile>();
    for (int r = 0; r < state().palette.rows[kTile]; ++r) {
      std::memcpy(static_cast<std::byte*>(memory) + r * stride, tile.bytes + r * kRowBytes,
                  state().palette.row_bytes[kTile]);
    }
  }
  template <int kTile>
  static void zero() {
    std::memset(&used<kTile>(), 0, sizeof(Register));
  }
  // Fused multiply-adds rounded to nearest even, denormals flushed on the way in and out.
  template <int kSums, int kRows, int kWeights>
  static void multiplyBf16() {
    static_assert(kSums != kRows && kSums != kWeights && kRows != kWeights);
    Register& sums = used<kSums>();
    const Register &rows = used<kRows>(), &weights = used<kWeights>();
    const Palette& p = state().palette;
    require(p.rows[kSums] == p.rows[kRows] && p.row_bytes[kRows] / 4 == p.rows[kWeights] &&
                p.row_bytes[kSums] == p.row_bytes[kWeights] && p.row_bytes[kRows] % 4 == 0 &&
                p.row_bytes[kSums] % 4 == 0,
            "TDPBF16PS: register shapes do not match");
    const int cols = p.row_bytes[kSums] / 4;
    for (int m = 0; m < p.rows[kSums]; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < p.row_bytes[kRows] / 4; ++k) {
        for (int n = 0; n < cols; ++n) {
          even[n] = flush(std::fma(rows.half(m, k, 0), weights.half(k, n, 0), even[n]));
          odd[n] = flush(std::fma(rows.half(m, k, 1), weights.half(k, n, 1), odd[n]));
        }
      }
      for (int n = 0; n < cols; ++n) {
        float& sum = sums.single(m, n);
        sum = flush(flush(sum) + flush(even[n] + odd[n]));
      }
      std::memset(sums.bytes + m * kRowBytes + cols * 4, 0, static_cast<size_t>(kRowBytes - cols * 4));
    }
    const int64_t used_bytes = p.rows[kSums] * kRowBytes;
    std::memset(sums.bytes + used_bytes, 0, sizeof(Register) - static_cast<size_t>(used_bytes));
  }

  static void widen(const std::byte* values, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) to[i] = loadAsFloat(values, DType::kBFloat16, static_cast<size_t>(i));
  }
  // The product of one row with the bits of multiplyBf16. x: floats with bfloat16 values. y: the row's first column.
  static void multiplyRow(const PanelArgs& args, const float* x, float* y) {
    for (int64_t col = args.skip; col < args.cols; ++col) {
      const auto* panel = static_cast<const std::byte*>(args.panels) + col / kPanelCols * args.panel_stride;
      float sum = args.accumulate ? y[col] : 0.0f;
      for (int64_t i = 0; i < args.inputs; i += kBlockInputs) {
        float even = 0, odd = 0;
        for (int64_t pair = i / 2; pair < (std::min(args.inputs, i + kBlockInputs) + 1) / 2; ++pair) {
          const std::byte* w = panel + pair * args.input_stride + col % kPanelCols * 4;
          even = flush(std::fma(flush(x[2 * pair]), flush(loadAsFloat(w, DType::kBFloat16, 0)), even));
          odd = flush(std::fma(flush(x[2 * pair + 1]), flush(loadAsFloat(w, DType::kBFloat16, 1)), odd));
        }
        sum = flush(flush(sum) + flush(even + odd));
      }
      y[col] = sum;
    }
  }

  // Rounds like VCVTNE2PS2BF16: to nearest even, denormals become zeros.
  static void round(const float* row, int64_t count, std::byte* dst) {
    bf16 rounded[kBlockInputs] = {};
    for (int64_t i = 0; i < count; ++i) {
      const float value = flush(row[i]);
      convertElements(&value, DType::kFloat32, rounded + i, DType::kBFloat16, 1);
    }
    std::memcpy(dst, rounded, static_cast<size_t>((count + 3) / 4 * 8));
  }
  static void writeLine(const std::byte* sums, float* y, bool non_temporal) {
    require(!non_temporal || reinterpret_cast<uintptr_t>(y) % 64 == 0, "a non-temporal store needs an aligned line");
    std::memcpy(y, sums, kRowBytes);
  }
  static void finishWrites() {}
  static void scaleColumns(const float* factors, float* y, int64_t count) {
    for (int64_t i = 0; i < count; ++i) y[i] *= factors[i];
  }
};

}  // namespace chorus::tiles
