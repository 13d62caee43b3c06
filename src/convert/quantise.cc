#include "convert/quantise.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/quantise_row.h"
#include "checkpoint/shard.h"
#include "checkpoint/source_values.h"
#include "convert/tensor_copy.h"

namespace chorus {
namespace {

// Number of bytes of integers that are collected before they are written.
constexpr size_t kPieceBytes = size_t{1} << 20;

using Sink = std::function<void(uint64_t, std::span<const std::byte>)>;

// Quantises the rank's rows in order and passes the results to the sinks in pieces.
class QuantisedRows {
 public:
  QuantisedRows(const RankTensor& tensor, const TensorSlice& slice, int64_t in, const Sink& integers,
                const Sink& scales)
      : format_(tensor.format),
        slice_(slice),
        row_(static_cast<size_t>(in)),
        quantised_(static_cast<size_t>(in)),
        row_scales_(static_cast<size_t>(format_.group > 0 ? in / format_.group : 1)),
        scale_dtype_(tensor.format.scale_dtype),
        integer_sink_(integers),
        scale_sink_(scales) {}

  void add(const SourceRun& run) {
    for (int64_t r = run.row; r < run.row + run.rows; ++r) {
      if (run.tensor == nullptr) {
        std::fill(row_.begin(), row_.end(), 0.0f);
      } else {
        read(run, r);
      }
      quantiseRow(row_.data(), std::ssize(row_), format_, quantised_.data(), row_scales_.data());
      append();
    }
  }

  void finish() {
    flush(integers_, integer_offset_, integer_sink_);
    flush(scales_, scale_offset_, scale_sink_);
  }

 private:
  void read(const SourceRun& run, int64_t row) {
    const SourceTensor& source = *run.tensor;
    const size_t bytes = row_.size() * dtypeSize(source.dtype());
    // The source is gathered into 64-bit words, because its values in the file may be unaligned.
    words_.resize((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    gatherSource(source, run.transform, row, 1, 0, std::ssize(row_), reinterpret_cast<std::byte*>(words_.data()));
    convertElements(words_.data(), source.dtype(), row_.data(), DType::kFloat32, row_.size());
    changeValues(run.transform, row_);
    for (const float weight : row_) {
      if (!std::isfinite(weight)) {
        fail(ErrorCode::kInvalidArgument, "tensor '{}' holds a value that is not finite and cannot be quantised",
             run.name);
      }
    }
  }

  void append() {
    const auto* cut = quantised_.data() + slice_.col_begin;
    const auto cols = static_cast<size_t>(slice_.cols);
    if (format_.dtype == DType::kInt8) {
      const auto* bytes = reinterpret_cast<const std::byte*>(cut);
      integers_.insert(integers_.end(), bytes, bytes + cols);
    } else if (odd_) {
      std::byte* pair = integers_.data() + integers_.size() - cols;
      for (size_t i = 0; i < cols; ++i) pair[i] |= static_cast<std::byte>(static_cast<uint8_t>(cut[i]) << 4);
    } else {
      for (size_t i = 0; i < cols; ++i) integers_.push_back(static_cast<std::byte>(cut[i] & 0x0f));
    }
    odd_ = !odd_;
    const int64_t group = format_.group > 0 ? format_.group : std::ssize(row_);
    const size_t first = format_.group > 0 ? static_cast<size_t>(slice_.col_begin / group) : 0;
    const size_t count = format_.group > 0 ? static_cast<size_t>(slice_.cols / group) : 1;
    const size_t at = scales_.size();
    scales_.resize(at + count * dtypeSize(scale_dtype_));
    convertElements(row_scales_.data() + first, DType::kFloat32, scales_.data() + at, scale_dtype_, count);
    if (!odd_ && integers_.size() >= kPieceBytes) finish();
  }

  static void flush(std::vector<std::byte>& bytes, uint64_t& offset, const Sink& sink) {
    if (bytes.empty()) return;
    sink(offset, bytes);
    offset += bytes.size();
    bytes.clear();
  }

  WeightFormat format_;
  const TensorSlice& slice_;
  std::vector<uint64_t> words_;
  std::vector<float> row_;
  std::vector<int8_t> quantised_;
  std::vector<float> row_scales_;
  DType scale_dtype_;
  const Sink& integer_sink_;
  const Sink& scale_sink_;
  bool odd_ = false;  // an odd number of rows was appended
  std::vector<std::byte> integers_, scales_;
  uint64_t integer_offset_ = 0, scale_offset_ = 0;
};
}  // namespace

void quantiseRankTensor(const RankTensor& integers, const Mapping& mapping, int32_t rank, const SourceTensors& sources,
                        SourceFormat format, const Sink& integer_sink, const Sink& scale_sink) {
  const TensorSlice slice = sliceForRank(*integers.row, mapping.tp_size, mapping.tpRank(rank));
  QuantisedRows rows(integers, slice, integers.row->shape[1], integer_sink, scale_sink);
  forEachSourceRun(integers, slice, sources, format, [&](const SourceRun& run) {
    inBoundedPieces(run, [&](const SourceRun& piece) { rows.add(piece); });
  });
  rows.finish();
  dropSourcePages(integers, sources, format);
}

}  // namespace chorus
