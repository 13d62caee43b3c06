// Metadata of the rows of one step, in host memory; Backend::prepare turns it into the backend's form. Ops get it from
// the step's context; their arguments have only device memory, numbers and handles. A row is one token. Rows are packed
// without padding: first the sequences in their context phase, then those in their generation phase.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/step_groups.h"

namespace chorus {

// The block tables of one sequence, one for each KV group of the model (models/kv_groups.h). Entry i of a group's table
// is the KV block that holds positions [i * tokens_per_block, (i + 1) * tokens_per_block) of the group's layers.
// Entries of blocks that end before the windows of the step's rows are undefined and must not be read.
class BlockTables {
 public:
  BlockTables() = default;
  // The table of a model with one group. Whoever makes this object keeps the entries alive.
  template <typename Table>
    requires(!std::is_same_v<std::remove_cvref_t<Table>, BlockTables> &&
             std::is_convertible_v<const Table&, std::span<const int32_t>>)
  BlockTables(const Table& table) : BlockTables(std::span<const int32_t>(table), 0) {}
  BlockTables(std::vector<int32_t>&&) = delete;
  // first_group: the table of group 0. That of group g has the same length and begins g * stride entries later.
  BlockTables(std::span<const int32_t> first_group, ptrdiff_t stride) : first_(first_group), stride_(stride) {}

  std::span<const int32_t> operator[](int32_t group) const {
    assert(group == 0 || stride_ > 0);
    return {first_.data() + group * stride_, first_.size()};
  }

 private:
  std::span<const int32_t> first_;
  ptrdiff_t stride_ = 0;
};

// The tokens of one sequence in this step. A whole prompt, a chunk of a prompt and a generation step have the same
// form.
struct SequenceSpan {
  int32_t row_begin = 0;
  int32_t num_rows = 0;        // >= 1
  int32_t first_position = 0;  // position of its first row: the number of its tokens in the cache
  BlockTables block_tables;    // cover first_position + num_rows tokens
};

struct StepBatch {
  std::span<const int32_t> tokens;          // [rows]
  std::span<const SequenceSpan> sequences;  // in ascending order of rows; together they are all rows
  std::span<const int32_t> logits_rows;     // rows whose logits are needed, ascending
  StepGroups groups = {};                   // rows that adapters change, for all ops of the step
  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace chorus
