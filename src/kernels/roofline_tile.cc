// The measured loop of bfloat16 products by AMX.
#if defined(__x86_64__)
#include "kernels/cpu/amx_tiles.h"
#include "kernels/roofline_kernels.h"

namespace chorus {
namespace {

struct alignas(64) Palette {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Operands of the products, which fit in L1. They are random and change in every round, because products with zeros or
// with unchanged operands take less power, and the processor would run at a higher clock than in real products.
constexpr int kBlocks = 8;
struct alignas(64) Operands {
  uint16_t values[2][kBlocks][2][512];  // [rows, weights][block][register], bfloat16 in (-2, -1] or [1, 2)
};

Operands randomOperands() {
  Operands operands;
  uint32_t state = 1;
  for (auto& kind : operands.values) {
    for (auto& block : kind) {
      for (auto& tile : block) {
        for (uint16_t& value : tile) {
          state = state * 1664525 + 1013904223;
          value = static_cast<uint16_t>((state >> 16 & 0x807f) | 0x3f80);
        }
      }
    }
  }
  return operands;
}

float tileChains(int64_t rounds, float start) {
  static constexpr Palette palette;
  static const Operands operands = randomOperands();
  TileConfiguration tiles;
  amx::Tiles::configure(tiles, &palette);
  alignas(64) float sums[16][16];
  for (auto& row : sums) {
    for (float& value : row) value = start;
  }
  amx::Tiles::load<0>(sums, 64);
  amx::Tiles::load<1>(sums, 64);
  amx::Tiles::load<2>(sums, 64);
  amx::Tiles::load<3>(sums, 64);
  for (int64_t round = 0; round < rounds; ++round) {
    const auto& rows = operands.values[0][round % kBlocks];
    const auto& weights = operands.values[1][round % kBlocks];
    amx::Tiles::load<6>(weights[0], 64);
    amx::Tiles::load<4>(rows[0], 64);
    amx::Tiles::multiplyBf16<0, 4, 6>();
    amx::Tiles::load<7>(weights[1], 64);
    amx::Tiles::multiplyBf16<1, 4, 7>();
    amx::Tiles::load<5>(rows[1], 64);
    amx::Tiles::multiplyBf16<2, 5, 6>();
    amx::Tiles::multiplyBf16<3, 5, 7>();
  }
  amx::Tiles::store<0>(sums, 64);
  float sum = sums[0][0];
  amx::Tiles::store<3>(sums, 64);
  return sum + sums[0][0];
}
}  // namespace

ProductLoop tileProductLoop() { return {&tileChains, 4 * 2.0 * 16 * 16 * 32}; }

}  // namespace chorus
#endif
