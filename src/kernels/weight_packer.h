// Packs the weights of linears into the form that a backend multiplies. `chorus build` packs a model's weights into an
// engine; adapters are packed when they are loaded. The layers above the kernels do not depend on the form.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/tensor.h"

namespace chorus {

class BackgroundThrottle;

// All functions are thread-safe.
class WeightPacker {
 public:
  virtual ~WeightPacker() = default;

  // Size of a packed weight [out, in] in bytes. Throws Error(kCorrupt) if it is 2^63 or more.
  virtual int64_t bytes(const WeightFormat& format, int64_t out, int64_t in) const = 0;

  // Packs rows of a row-major weight, from host memory to host memory.
  //   - rows: num_rows contiguous rows of `in` elements of the format's dtype. int8: signed elements. int4: signed,
  //     [num_rows / 2, in] bytes; a byte has the element of an even row in its low half and that of the odd row after
  //     it in its high half. num_rows may be odd, row_begin may not.
  //   - dst: the start of a whole packed weight of bytes() bytes. Source row r becomes output feature row_begin + r, so
  //     that several sources can be appended by calls in ascending order.
  //   - Calls for the same weight may run at the same time if each begins at a multiple of rowsTogether().
  //   - Sets to zero whatever padding the form needs.
  //   - throttle: is charged for the bytes that are packed (float formats only); may be null.
  virtual void packRows(const void* rows, const WeightFormat& format, int64_t num_rows, int64_t in, int64_t row_begin,
                        void* dst, BackgroundThrottle* throttle) const = 0;
  virtual int64_t rowsTogether() const = 0;

  // Packs the scales of quantised rows: [num_rows, groups of `in`] (or [num_rows] for a format without groups) of type
  // `from`, rounded to the format's scale_dtype. row_begin and dst are as in packRows. packRows and packScales may be
  // called in either order.
  virtual void packScales(const void* scales, DType from, const WeightFormat& format, int64_t num_rows, int64_t in,
                          int64_t row_begin, void* dst) const = 0;

  // Unpacks feature `row` of a packed weight in host memory to floats [in].
  virtual void unpackRow(const PackedWeight& weight, int64_t row, float* out) const = 0;

  // Weights of equal format and size, one for each expert, lie one after the other at this distance in bytes, a
  // multiple of 64.
  virtual int64_t expertStride(const WeightFormat& format, int64_t out, int64_t in) const = 0;
  // The weight of an expert. first: the weight of expert 0.
  PackedWeight expertOf(const PackedWeight& first, int64_t expert) const;
};

// The packer of engines for this backend (the name in their build_config). Throws Error(kUnsupported) if this program
// has no such backend.
const WeightPacker& weightPacker(std::string_view backend);

}  // namespace chorus
