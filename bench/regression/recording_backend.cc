#include "recording_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/op_matrices.h"

namespace chorus {
namespace {

std::string weightText(const PackedWeight& weight) {
  return fmt::format(" weight {}x{} {}", weight.out, weight.in, dtypeName(weight.dtype));
}

std::string partText(const LoraTerm& part) { return fmt::format(" +{}r{}", part.out_begin, part.a.out); }
std::string partText(const EmbeddingPart& part) { return fmt::format(" +r{}", part.b.in); }

template <typename Group>
std::string groupText(const Group& group) {
  std::string text = " adapter rows";
  for (const RowRange& range : group.ranges) text += fmt::format(" {}-{}", range.begin, range.end - 1);
  if constexpr (requires { group.parts; }) {
    for (const auto& part : group.parts) text += partText(part);
  }
  return text;
}

template <typename Args>
std::string describe(std::string_view name, const Args& args, const StepGroups& groups) {
  std::string text(name);
  forEachMatrix(args, [&](std::string_view field, const ConstMatrix& matrix, MatrixUse) {
    text += fmt::format(" {} {}x{}", field, matrix.rows, matrix.cols);
  });
  if constexpr (requires { weightText(args.weight); }) text += weightText(args.weight);
  if constexpr (requires { args.kv.num_kv_heads; }) {
    text += fmt::format(" heads {}/{} kv {}", args.num_heads, args.kv.num_kv_heads, dtypeName(args.kv.dtype));
  }
  if constexpr (requires { args.groups; }) {
    for (const auto& group : groups[args.groups]) text += groupText(group);
  }
  return text;
}

}  // namespace

void RecordingBackend::prepare(const StepBatch& batch, StepContext& context) {
  lines_.push_back(fmt::format("prepare {} rows, {} sequences, {} logits rows", batch.rows(), batch.sequences.size(),
                               batch.logits_rows.size()));
  groups_ = batch.groups;
  inner().prepare(batch, context);
}

void RecordingBackend::download(void* host, const void* device, size_t bytes, Stream stream) {
  lines_.push_back(fmt::format("download {} bytes", bytes));
  inner().download(host, device, bytes, stream);
}

#define CHORUS_OP(Name, function, name)                                                          \
  void RecordingBackend::function(const Name##Args& args, StepContext& context, Stream stream) { \
    lines_.push_back(describe(name, args, groups_));                                             \
    inner().function(args, context, stream);                                                     \
  }
CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

std::vector<std::string> folded(const std::vector<std::string>& lines) {
  std::vector<std::string> out;
  for (size_t at = 0; at < lines.size();) {
    size_t best_length = 1, best_times = 1;
    for (size_t length = 1; length <= (lines.size() - at) / 2; ++length) {
      const auto block = lines.begin() + static_cast<ptrdiff_t>(at);
      size_t times = 1;
      while (at + (times + 1) * length <= lines.size() && std::equal(block, block + static_cast<ptrdiff_t>(length),
                                                                     block + static_cast<ptrdiff_t>(times * length))) {
        ++times;
      }
      if (times > 1 && length * times > best_length * best_times) {
        best_length = length;
        best_times = times;
      }
    }
    const std::string indent = best_times > 1 ? "  " : "";
    if (best_times > 1) out.push_back(fmt::format("{} x {{", best_times));
    for (size_t i = 0; i < best_length; ++i) out.push_back(indent + lines[at + i]);
    if (best_times > 1) out.push_back("}");
    at += best_length * best_times;
  }
  return out;
}

}  // namespace chorus
