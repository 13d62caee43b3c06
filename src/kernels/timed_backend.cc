#include "kernels/timed_backend.h"

#include <algorithm>
#include <chrono>

#include "kernels/linear/panel_layout.h"
#include "kernels/op_matrices.h"
#include "kernels/row_range.h"

namespace chorus {
namespace {

double bytesOf(const ConstMatrix& m) {
  return static_cast<double>(static_cast<size_t>(m.rows * m.cols) * dtypeSize(m.dtype));
}
double bytesOf(const PackedWeight& w) {
  return w.data == nullptr ? 0 : static_cast<double>(packedBytes(w.format(), w.out, w.in));
}
// Bytes that the keys and values of `positions` positions take in one layer.
double bytesOf(const KvLayer& kv, double positions) {
  return 2 * positions * kv.num_kv_heads * kv.head_size * static_cast<double>(dtypeSize(kv.dtype));
}

void addLinear(const LinearArgs& args, const StepGroups& groups, OpTime& work) {
  work.out = args.weight.out;
  work.bytes += bytesOf(args.weight);
  work.flops += 2.0 * static_cast<double>(args.x.rows * args.weight.in) * static_cast<double>(args.weight.out);
  for (const RowGroup& group : groups[args.groups]) {
    double rows = 0;
    for (const RowRange range : group.ranges) {
      const RowRange here = rangeWithin(range, args.first_row, args.x.rows);
      rows += here.end - here.begin;
    }
    if (rows == 0) continue;
    work.bytes += bytesOf(group.weight);
    for (const LoraTerm& term : group.parts) {
      work.bytes += bytesOf(term.a) + bytesOf(term.b);
      work.flops += 2 * rows * static_cast<double>(term.a.out * (term.a.in + term.b.out));
    }
  }
}

void addAttention(const AttentionArgs& args, std::span<const SequenceSpan> sequences, OpTime& work) {
  double read = 0, seen = 0;  // positions that are read from memory, and positions that the queries of a head attend to
  for (const SequenceSpan& sequence : sequences) {
    const int64_t end = sequence.first_position + sequence.num_rows;
    read += static_cast<double>(end - args.mask.firstPosition(sequence.first_position));
    for (int64_t p = sequence.first_position; p < end; ++p) {
      seen += static_cast<double>(p + 1 - args.mask.firstPosition(p));
    }
  }
  work.bytes += bytesOf(args.kv, read);
  work.flops += 4 * seen * args.num_heads * args.kv.head_size;
}

template <typename Args>
OpTime workOf(std::string_view op, const Args& args, const StepBatch& batch) {
  OpTime work{.op = op};
  forEachMatrix(args, [&](std::string_view, const ConstMatrix& matrix, MatrixUse use) {
    work.bytes += (use == MatrixUse::kUpdated ? 2 : 1) * bytesOf(matrix);
    if (use != MatrixUse::kWritten && work.in == 0) work.in = matrix.cols;
    if (use == MatrixUse::kWritten) work.out = matrix.cols;
  });
  if (work.out == 0) work.out = work.in;
  using std::is_same_v;
  if constexpr (is_same_v<Args, LinearArgs>) addLinear(args, batch.groups, work);
  if constexpr (is_same_v<Args, AttentionArgs>) addAttention(args, batch.sequences, work);
  if constexpr (is_same_v<Args, KvWriteArgs>) work.bytes += bytesOf(args.kv, static_cast<double>(args.qkv.rows));
  if constexpr (is_same_v<Args, RmsNormArgs> || is_same_v<Args, LayerNormArgs>) {
    if (args.delta.data == nullptr) work.bytes -= bytesOf(args.residual);  // it is only read then
  }
  // Only the rows that are looked up are read.
  if constexpr (is_same_v<Args, GatherRowsArgs> || is_same_v<Args, EmbeddingArgs>) work.bytes = 2 * bytesOf(args.out);
  if constexpr (is_same_v<Args, MoeArgs>) work.bytes = 0;
  return work;
}

}  // namespace

template <typename Call>
void TimedBackend::add(OpTime work, Call call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  work.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  work.calls = 1;
  const auto same = std::find_if(times_.begin(), times_.end(), [&](const OpTime& other) {
    return other.op == work.op && other.in == work.in && other.out == work.out;
  });
  if (same == times_.end()) {
    times_.push_back(work);
    return;
  }
  ++same->calls;
  same->seconds += work.seconds;
  same->bytes += work.bytes;
  same->flops += work.flops;
}

void TimedBackend::download(void* host, const void* device, size_t bytes, Stream stream) {
  add({.op = "download", .bytes = 2.0 * static_cast<double>(bytes)},
      [&] { inner().download(host, device, bytes, stream); });
}

void TimedBackend::prepare(const StepBatch& batch, StepContext& context) {
  batch_ = batch;
  add({.op = "prepare"}, [&] { inner().prepare(batch, context); });
}

#define CHORUS_OP(Name, function, name)                                                      \
  void TimedBackend::function(const Name##Args& args, StepContext& context, Stream stream) { \
    add(workOf(name, args, batch_), [&] { inner().function(args, context, stream); });       \
  }
CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

}  // namespace chorus
