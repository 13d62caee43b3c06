#include "kernels/weight_packer.h"

#include <cstddef>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

// The panels of the CPU's linear. The reference and the guarded backend read the same form.
class PanelPacker final : public WeightPacker {
 public:
  int64_t bytes(const WeightFormat& format, int64_t out, int64_t in) const override {
    constexpr const char* kWhat = "the size of a weight";
    constexpr int64_t kMaxInputs = int64_t{1} << 48;
    const auto panels = checkedAdd(static_cast<uint64_t>(out), kPanelCols - 1, kWhat) / kPanelCols;
    // Bounded, so that the bytes of one panel do not overflow.
    if (out < 0 || in < 0 || in > kMaxInputs) fail(ErrorCode::kCorrupt, "a weight [{}, {}] is out of range", out, in);
    const uint64_t bytes = checkedMul(panels, static_cast<uint64_t>(panelBytes(format, in)), kWhat);
    if (bytes > uint64_t{std::numeric_limits<int64_t>::max()} - 63) {
      fail(ErrorCode::kCorrupt, "a weight [{}, {}] is out of range", out, in);
    }
    return static_cast<int64_t>(bytes);
  }
  void packRows(const void* rows, const WeightFormat& format, int64_t num_rows, int64_t in, int64_t row_begin,
                void* dst, BackgroundThrottle* throttle) const override {
    chorus::packRows(rows, format, num_rows, in, row_begin, dst, throttle);
  }
  int64_t rowsTogether() const override { return kPanelCols; }
  void packScales(const void* scales, DType from, const WeightFormat& format, int64_t num_rows, int64_t in,
                  int64_t row_begin, void* dst) const override {
    chorus::packScales(scales, from, format, num_rows, in, row_begin, dst);
  }
  void unpackRow(const PackedWeight& weight, int64_t row, float* out) const override {
    chorus::unpackRow(weight, row, out);
  }
  int64_t expertStride(const WeightFormat& format, int64_t out, int64_t in) const override {
    bytes(format, out, in);  // checks the range
    return chorus::expertStride(format, out, in);
  }
};
}  // namespace

PackedWeight WeightPacker::expertOf(const PackedWeight& first, int64_t expert) const {
  PackedWeight own = first;
  own.data = static_cast<const std::byte*>(first.data) + expert * expertStride(first.format(), first.out, first.in);
  return own;
}

const WeightPacker& weightPacker(std::string_view backend) {
  static const PanelPacker panels;
  if (backend == "cpu") return panels;
  fail(ErrorCode::kUnsupported, "this program has no backend '{}'", backend);
}

}  // namespace chorus
