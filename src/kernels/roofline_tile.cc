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

float tileChains(int64_t rounds, float start) {
  static constexpr Palette palette;
  amx::Tiles::configure(&palette);
  alignas(64) float memory[16][16];
  for (auto& row : memory) {
    for (float& value : row) value = start;
  }
  amx::Tiles::load<0>(memory, 64);
  amx::Tiles::load<1>(memory, 64);
  amx::Tiles::load<2>(memory, 64);
  amx::Tiles::load<3>(memory, 64);
  amx::Tiles::load<4>(memory, 64);
  amx::Tiles::load<5>(memory, 64);
  amx::Tiles::load<6>(memory, 64);
  amx::Tiles::load<7>(memory, 64);
  for (int64_t round = 0; round < rounds; ++round) {
    amx::Tiles::multiplyBf16<0, 4, 6>();
    amx::Tiles::multiplyBf16<1, 4, 7>();
    amx::Tiles::multiplyBf16<2, 5, 6>();
    amx::Tiles::multiplyBf16<3, 5, 7>();
  }
  amx::Tiles::store<0>(memory, 64);
  float sum = memory[0][0];
  amx::Tiles::store<3>(memory, 64);
  return sum + memory[0][0];
}
}  // namespace

ProductLoop tileProductLoop() { return {&tileChains, 4 * 2.0 * 16 * 16 * 32}; }

}  // namespace chorus
#endif
