// The weight table: one WeightRow per checkpoint tensor of an architecture. Converter, completeness check, sharding,
// LoRA targets and the tiny random models of tests are all derived from it; no second list of tensors exists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/config.h"
#include "checkpoint/quant_scheme.h"
#include "checkpoint/weight_slot.h"
#include "kernels/tensor.h"

namespace chorus {

// The pipeline stages that hold a row.
enum class Stage { kFirst, kEveryLayer, kLast };

// The rule by which one tensor is cut over tensor-parallel ranks, as TensorRT-LLM's converters cut it.
struct ShardRule {
  enum class Axis { kNone, kRows, kColumns };
  Axis axis = Axis::kNone;
  // Rows that are cut separately and then concatenated, e.g. {q, k, v} row counts; empty: one part of all rows.
  std::vector<int64_t> parts;
  // head_rows[i] is the number of rows of one KV head in parts[i]. If there are fewer KV heads than ranks, consecutive
  // ranks hold the same head. 0: heads are never repeated.
  std::vector<int64_t> head_rows;
  bool pad_rows = false;  // pad rows with zeros to a multiple of tp_size (vocabulary)
};

// Selects rows of a source tensor, for sources that fuse several checkpoint tensors or order their rows differently.
// Selected row i is row begin + i / block * stride + i % block of the source: runs of `block` rows, one run every
// `stride` rows.
struct SourceRows {
  int64_t total = 0;  // rows of the source; 0: the source has exactly the selected rows, in order
  int64_t begin = 0;
  int64_t block = 0;  // 0: all selected rows are consecutive
  int64_t stride = 0;

  int64_t rowsOfSource(int64_t taken) const { return total > 0 ? total : taken; }
  // Calls fn(source row, count) for each run of consecutive source rows among the selected rows [first, first + count),
  // in order.
  template <typename F>
  void forEachRun(int64_t first, int64_t count, F&& fn) const {
    for (int64_t row = first; row < first + count;) {
      const int64_t left = first + count - row;
      const int64_t run = block > 0 ? std::min(left, block - row % block) : left;
      fn(block > 0 ? begin + row / block * stride + row % block : begin + row, run);
      row += run;
    }
  }
};

// Describes how conversion changes the values of a source: checkpoint value = scale * source value + add. It does not
// select rows: leading rows that carry no weights, such as the first two of OPT's positions, are skipped by
// SourceRows::begin.
struct SourceTransform {
  bool transposed = false;  // the source is [in, out], as GPT-2's Conv1D keeps its linears
  float scale = 1.0f;
  float add = 0.0f;  // 1 for norms that are stored as their difference from 1, as Gemma's are

  bool changesValues() const { return scale != 1.0f || add != 0.0f; }
};

// The kinds of model files whose tensors a weight table names. A table need not have sources of every format.
enum class SourceFormat {
  kHuggingFace,
  kCheckpoint,  // TensorRT-LLM's checkpoints: the names and shapes of the rows themselves
  kNemo,
  kJax,
};

// Rows [row_begin, row_begin + rows) of the checkpoint tensor come from this source tensor. The sources of one format
// and spelling cover all rows of the checkpoint tensor. The source of a row with experts is either one tensor for each
// expert, whose name has "{expert}", or a tensor of all experts, [experts, rows, cols].
struct WeightSource {
  std::string name;  // in files of the format; "{layer}" stands for the global layer id, "{expert}" for the expert's
  int64_t row_begin = 0;
  int64_t rows = 0;  // 0-d and 1-d tensors: elements
  SourceRows in_source = {};
  SourceTransform transform = {};
  SourceFormat format = SourceFormat::kHuggingFace;
  // Files of one format may spell the same tensor in several ways, numbered from 0; a file has one of them
  // (keepSpelling).
  int32_t spelling = 0;
};

// The order of the rows of q and k in torchtune's own files: the source's, or pairs: of each head, the two halves of
// the source's rows as adjacent pairs.
enum class TorchtuneRows { kUnknown, kAsInSource, kPairs };

// A LoRA module that adapts output rows [row_begin, row_begin + rows) of this linear.
struct LoraTarget {
  int32_t module_id = 0;  // TensorRT-LLM's, see lora/module_ids.h
  // The name that follows "layers.N." in an adapter's keys: "self_attn.q_proj". "{expert}" is replaced by the expert's
  // id. A target for all experts at once has the name of a parameter, as in PEFT's target_parameters.
  std::string module_name;
  int64_t row_begin = 0;
  int64_t rows = 0;
  // Selects rows of B and of DoRA's magnitude: an adapter of a fused source linear has one LoraTarget for each part,
  // all with the same name.
  SourceRows in_module = {};
  TorchtuneRows torchtune_rows = TorchtuneRows::kUnknown;  // of q and k
};

struct WeightRow {
  std::string name;            // in the checkpoint; "{layer}" stands for the layer id (local in rank files)
  std::vector<int64_t> shape;  // of the whole, unsharded tensor; of one expert's weight if there are experts
  WeightSlot slot;             // where the runtime keeps it
  Stage stage = Stage::kEveryLayer;
  ShardRule shard;
  std::vector<WeightSource> sources;
  std::vector<LoraTarget> lora_targets;
  bool quantisable = false;  // exclude_modules can leave it out, as it mostly does with the output head
  // Number of experts: the tensor is [experts, out, in], and shape, shard and row numbers are those of one expert. 0:
  // the row has no expert dimension.
  int64_t experts = 0;
  std::vector<int32_t> layers = {};  // global ids of the layers that have the row, ascending; empty: all layers
  std::optional<DType> dtype = {};   // of the checkpoint's tensor; none: the config's

  bool isInLayer(int32_t layer) const {
    return layers.empty() || std::binary_search(layers.begin(), layers.end(), layer);
  }
};

using WeightTable = std::vector<WeightRow>;

// The table row whose slot equals `slot`, including row_begin; nullptr when there is none.
const WeightRow* findRow(const WeightTable& table, const WeightSlot& slot);

// The sources of one format, in the order of the checkpoint tensor's rows. The row must outlive them.
std::vector<const WeightSource*> sourcesOf(const WeightRow& row, SourceFormat format);
// The shape that a source's tensor must have.
std::vector<int64_t> sourceShape(const WeightRow& row, const WeightSource& source);
// Removes all sources of this format but those of one spelling: the first one of which has(name) is true for the first
// tensor, or else the first one.
void keepSpelling(WeightTable& table, SourceFormat format, const std::function<bool(const std::string& name)>& has);

// A tensor of a rank's file, with its final name and its shape on that rank.
struct RankTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;  // in the file
  const WeightRow* row;
  int32_t layer;  // global id, or kOutsideLayers
  TensorRole role = TensorRole::kValues;
  WeightFormat format;     // of the weight that it belongs to
  int64_t slot_begin = 0;  // where its rows begin in the slot, in rows of this rank

  // Rows of the weight, or of each expert's: one int4 row of the file holds two of them.
  int64_t rows() const {
    const int64_t in_file = shape[row->experts > 0 ? 1 : 0];
    return role == TensorRole::kIntegers && format.dtype == DType::kInt4 ? 2 * in_file : in_file;
  }
  // Elements of one row of the file.
  int64_t cols() const {
    const size_t first = row->experts > 0 ? 2 : 1;
    return shape.size() > first ? shape[first] : 1;
  }
};
// All tensors of `rank`, in file order; the scales of a quantised row follow its integers. The table must outlive the
// result. Layer ids in names restart at 0 on every pipeline stage. Throws Error that names the tensor if it cannot be
// cut or quantised in this way.
std::vector<RankTensor> rankTensors(const WeightTable& table, const ModelConfig& config, int32_t rank);

// A name of the table with its "{layer}" replaced by the layer id, or its "{expert}" by the expert's id; names without
// one are returned as they are.
std::string layerName(std::string_view pattern, int32_t layer);
std::string expertName(std::string_view pattern, int64_t expert);
// Whether the name has "{expert}".
bool namesExpert(std::string_view pattern);
// The ids with which layerName and expertName make a name of the pattern; an id without a placeholder is 0. nullopt if
// no ids make it.
struct NameIds {
  int64_t layer = 0;
  int64_t expert = 0;
};
std::optional<NameIds> idsIn(std::string_view pattern, std::string_view name);

}  // namespace chorus
