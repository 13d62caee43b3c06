#include "convert/tensor_copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/source_values.h"

namespace chorus {
namespace {

// Enough for long writes, small enough that pieces stay in the second-level cache.
constexpr uint64_t kCopiedPieceBytes = uint64_t{1} << 20;

// Bytes of a source after which its pages are dropped.
constexpr uint64_t kKeptBytes = uint64_t{8} << 20;

using Sink = std::function<void(uint64_t, std::span<const std::byte>)>;

// Buffers of 8-byte words, so that every element type is aligned whatever the file's alignment is.
class Buffer {
 public:
  std::byte* grow(size_t bytes) {
    if (words_.size() * sizeof(uint64_t) < bytes) words_.resize((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    return reinterpret_cast<std::byte*>(words_.data());
  }

 private:
  std::vector<uint64_t> words_;
};

bool overflowsFloat16(const std::byte* source, DType source_dtype, const std::byte* converted, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, converted + 2 * i, sizeof(bits));
    if ((bits & 0x7fffu) == 0x7c00u && std::isfinite(loadAsFloat(source, source_dtype, i))) return true;
  }
  return false;
}

class Copier {
 public:
  Copier(DType dtype, int64_t col_begin, int64_t cols, const Sink& sink)
      : dtype_(dtype), col_begin_(static_cast<size_t>(col_begin)), cols_(static_cast<size_t>(cols)), sink_(sink) {}

  // Rows without a source: zeros, or the scale of zeros, which is 1.
  void padding(int64_t rows, TensorRole role) {
    const std::vector<float> values(cols_, role == TensorRole::kScales ? 1.0f : 0.0f);
    std::byte* row = converted_.grow(cols_ * dtypeSize(dtype_));
    if (role == TensorRole::kIntegers) {
      std::memset(row, 0, cols_);
    } else {
      convertElements(values.data(), DType::kFloat32, row, dtype_, cols_);
    }
    for (int64_t i = 0; i < rows; ++i) emit({row, cols_ * dtypeSize(dtype_)});
  }

  void rows(const SourceRun& run) {
    const SourceTensor& source = *run.tensor;
    const SourceTransform& transform = run.transform;
    const size_t size = dtypeSize(source.dtype());
    if (source.dtype() == dtype_ && cols_ == static_cast<size_t>(sourceColumns(source, transform)) &&
        !transform.transposed && !transform.changesValues()) {
      if (const auto stored = source.storedRows(run.row, run.rows); !stored.empty()) return emit(stored);
    }
    const int64_t piece_rows = pieceRows(cols_ * std::max(size, dtypeSize(dtype_)));
    for (int64_t done = 0; done < run.rows; done += piece_rows) {
      const int64_t rows = std::min(piece_rows, run.rows - done);
      const size_t count = static_cast<size_t>(rows) * cols_;
      std::byte* gathered = gathered_.grow(count * size);
      gatherSource(source, transform, run.row + done, rows, static_cast<int64_t>(col_begin_),
                   static_cast<int64_t>(cols_), gathered);
      if (!transform.changesValues()) {
        convert(source.dtype(), run.name, gathered, count);
        continue;
      }
      changed_.resize(count);
      convertElements(gathered, source.dtype(), changed_.data(), DType::kFloat32, count);
      changeValues(transform, changed_);
      convert(DType::kFloat32, run.name, reinterpret_cast<const std::byte*>(changed_.data()), count);
    }
  }

 private:
  static int64_t pieceRows(size_t row_bytes) {
    return static_cast<int64_t>(std::max<uint64_t>(1, kCopiedPieceBytes / std::max<size_t>(row_bytes, 1)));
  }

  void convert(DType source_dtype, const std::string& name, const std::byte* gathered, size_t count) {
    const size_t bytes = count * dtypeSize(dtype_);
    if (source_dtype == dtype_) return emit({gathered, bytes});
    std::byte* out = converted_.grow(bytes);
    convertElements(gathered, source_dtype, out, dtype_, count);
    if (dtype_ == DType::kFloat16 && source_dtype != DType::kFloat16 &&
        overflowsFloat16(gathered, source_dtype, out, count)) {
      fail(ErrorCode::kInvalidArgument,
           "tensor '{}' holds values beyond float16's 65504; convert with --dtype bfloat16", name);
    }
    emit({out, bytes});
  }

  void emit(std::span<const std::byte> bytes) {
    sink_(offset_, bytes);
    offset_ += bytes.size();
  }

  DType dtype_;
  size_t col_begin_;
  size_t cols_;
  const Sink& sink_;
  uint64_t offset_ = 0;
  Buffer gathered_;
  std::vector<float> changed_;
  Buffer converted_;
};
}  // namespace

bool isConvertible(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat64;
}

Extent storedExtent(const RankTensor& tensor) {
  const std::vector<int64_t>& shape = tensor.row->shape;
  const Extent whole = {shape[0], shape.size() > 1 ? shape[1] : 1};
  if (tensor.role == TensorRole::kScales) {
    return {whole.rows, tensor.format.group > 0 ? whole.cols / tensor.format.group : 1};
  }
  if (tensor.role == TensorRole::kIntegers && tensor.format.dtype == DType::kInt4) {
    return {(whole.rows + 1) / 2, whole.cols};
  }
  return whole;
}

namespace {

// Runs that continue each other become one.
std::vector<RowRun> joined(const std::vector<RowRun>& runs) {
  std::vector<RowRun> result;
  for (const RowRun& run : runs) {
    const bool continues =
        !result.empty() &&
        (run.begin < 0 ? result.back().begin < 0
                       : result.back().begin >= 0 && result.back().begin + result.back().rows == run.begin);
    if (continues) {
      result.back().rows += run.rows;
    } else {
      result.push_back(run);
    }
  }
  return result;
}

// The runs in pairs of rows. The last row of a tensor may be in a pair with a row of padding.
std::vector<RowRun> inPairs(const RankTensor& tensor, const std::vector<RowRun>& runs) {
  std::vector<RowRun> pairs = joined(runs);
  for (size_t i = 0; i < pairs.size(); ++i) {
    RowRun& run = pairs[i];
    const bool ends_with_padding = run.begin >= 0 && run.begin + run.rows == tensor.row->shape[0] &&
                                   i + 1 < pairs.size() && pairs[i + 1].begin < 0;
    if (run.rows % 2 != 0 && ends_with_padding) {
      ++run.rows;
      --pairs[i + 1].rows;
    }
    if (run.rows % 2 != 0 || (run.begin > 0 && run.begin % 2 != 0)) {
      fail(ErrorCode::kUnsupported,
           "{}: int4 weights are stored in pairs of rows, which these ranks would separate; convert the unquantised "
           "model",
           tensor.name);
    }
    run.rows /= 2;
    if (run.begin > 0) run.begin /= 2;
  }
  std::erase_if(pairs, [](const RowRun& run) { return run.rows == 0; });
  return pairs;
}
}  // namespace

TensorSlice storedSlice(const RankTensor& tensor, TensorSlice slice) {
  if (tensor.role == TensorRole::kScales) {
    const int64_t group = tensor.format.group;
    slice.col_begin = group > 0 ? slice.col_begin / group : 0;
    slice.cols = group > 0 ? slice.cols / group : 1;
  } else if (tensor.role == TensorRole::kIntegers && tensor.format.dtype == DType::kInt4) {
    slice.runs = inPairs(tensor, slice.runs);
    slice.rows /= 2;
  }
  return slice;
}

std::string storedName(const RankTensor& tensor, const std::string& weight) {
  return tensor.role == TensorRole::kScales ? scaleName(weight, tensor.format.group > 0) : weight;
}

namespace {

void forEachRunOfExpert(const RankTensor& tensor, int64_t expert, const TensorSlice& slice,
                        const SourceTensors& sources, SourceFormat format,
                        const std::function<void(const SourceRun&)>& fn) {
  for (const RowRun& run : slice.runs) {
    if (run.begin < 0) {
      fn({.name = tensor.name, .rows = run.rows});
      continue;
    }
    for (const WeightSource* source : sourcesOf(*tensor.row, format)) {
      const int64_t begin = std::max(run.begin, source->row_begin);
      const int64_t end = std::min(run.begin + run.rows, source->row_begin + source->rows);
      if (begin >= end) continue;
      const std::string name = storedName(tensor, expertName(layerName(source->name, tensor.layer), expert));
      const SourceTensor* found = sources.find(name);
      SourceTensor part;
      if (tensor.row->experts > 0 && !namesExpert(source->name)) {
        part = found->part(expert);
        found = &part;
      }
      SourceRun rows = {.tensor = found, .transform = source->transform, .name = name};
      source->in_source.forEachRun(begin - source->row_begin, end - begin, [&](int64_t row, int64_t count) {
        rows.row = row;
        rows.rows = count;
        fn(rows);
      });
    }
  }
}
}  // namespace

void inBoundedPieces(const SourceRun& run, const std::function<void(const SourceRun&)>& fn) {
  const uint64_t row_bytes =
      run.tensor == nullptr ? 0 : static_cast<uint64_t>(run.tensor->cols()) * dtypeSize(run.tensor->dtype());
  const uint64_t bytes = static_cast<uint64_t>(run.rows) * row_bytes;
  // Rows of a transposed source share all their pages. Smaller runs are dropped together with their tensor.
  if (run.transform.transposed || bytes <= kKeptBytes) return fn(run);
  const auto rows = static_cast<int64_t>(kKeptBytes / row_bytes + 1);
  SourceRun piece = run;
  for (const int64_t end = run.row + run.rows; piece.row < end; piece.row += piece.rows) {
    piece.rows = std::min(rows, end - piece.row);
    fn(piece);
    run.tensor->dropPages(piece.row, piece.rows);
  }
}

void dropSourcePages(const RankTensor& tensor, const SourceTensors& sources, SourceFormat format) {
  for (const WeightSource* source : sourcesOf(*tensor.row, format)) {
    const std::string name = storedName(tensor, layerName(source->name, tensor.layer));
    for (int64_t expert = 0; expert < (namesExpert(name) ? tensor.row->experts : 1); ++expert) {
      const SourceTensor* found = sources.find(expertName(name, expert));
      found->dropPages(0, found->rows());
    }
  }
}

void forEachSourceRun(const RankTensor& tensor, const TensorSlice& slice, const SourceTensors& sources,
                      SourceFormat format, const std::function<void(const SourceRun&)>& fn) {
  for (int64_t expert = 0; expert < std::max<int64_t>(tensor.row->experts, 1); ++expert) {
    forEachRunOfExpert(tensor, expert, slice, sources, format, fn);
  }
}

void copyRankTensor(const RankTensor& tensor, const Mapping& mapping, int32_t rank, const SourceTensors& sources,
                    SourceFormat format, const Sink& sink) {
  const TensorSlice slice = storedSlice(tensor, sliceForRank(*tensor.row, mapping.tp_size, mapping.tpRank(rank)));
  Copier copier(tensor.dtype, slice.col_begin, slice.cols, sink);
  forEachSourceRun(tensor, slice, sources, format, [&](const SourceRun& run) {
    if (run.tensor == nullptr) return copier.padding(run.rows, tensor.role);
    inBoundedPieces(run, [&](const SourceRun& piece) { copier.rows(piece); });
  });
  dropSourcePages(tensor, sources, format);
}

}  // namespace chorus
