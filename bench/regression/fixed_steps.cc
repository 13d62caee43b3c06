#include "fixed_steps.h"

#include <numeric>
#include <utility>

namespace chorus {
namespace {

constexpr int32_t kContext = 64;
constexpr int32_t kBlocksOfASequence = 8;

// Adds a sequence with `rows` tokens at the positions from `first` on, in the KV blocks of `slot`. Requests the logits
// of its last token.
void addSequence(FixedStep& step, int32_t slot, int32_t first, int32_t rows, int32_t vocab) {
  std::vector<int32_t> table(kBlocksOfASequence);
  std::iota(table.begin(), table.end(), slot * kBlocksOfASequence);
  step.tables.push_back(std::move(table));
  StepInput& input = step.input;
  const auto begin = static_cast<int32_t>(input.tokens.size());
  for (int32_t i = 0; i < rows; ++i) input.tokens.push_back((slot * 131 + (first + i) * 17 + 5) % vocab);
  input.sequences.push_back({.row_begin = begin, .num_rows = rows, .first_position = first});
  input.logits_rows.push_back(begin + rows - 1);
}

FixedStep generation(std::string name, int32_t sequences, int32_t vocab) {
  FixedStep step{.name = std::move(name)};
  for (int32_t slot = 0; slot < sequences; ++slot) addSequence(step, slot, kContext, 1, vocab);
  return step;
}

FixedStep context(std::string name, int32_t sequences, int32_t rows, int32_t vocab) {
  FixedStep step{.name = std::move(name)};
  for (int32_t slot = 0; slot < sequences; ++slot) addSequence(step, slot, 0, rows, vocab);
  return step;
}

AdapterRows rowsOf(const PreparedAdapter& adapter, std::vector<RowRange> ranges) {
  return {adapter.id, adapter.vocab_size, std::move(ranges)};
}

}  // namespace

std::vector<FixedStep> fixedSteps(int32_t vocab, const std::vector<std::shared_ptr<const PreparedAdapter>>& adapters) {
  std::vector<FixedStep> steps;
  steps.push_back(context("context_64", 1, kContext, vocab));
  steps.push_back(generation("generation_1", 1, vocab));
  steps.push_back(generation("generation_8", 8, vocab));
  FixedStep both{.name = "context_32_generation_7"};
  addSequence(both, 7, 0, 32, vocab);
  for (int32_t slot = 0; slot < 7; ++slot) addSequence(both, slot, kContext, 1, vocab);
  steps.push_back(std::move(both));
  if (!adapters.empty()) {
    FixedStep mixed = generation("generation_8_adapters_3", 8, vocab);
    mixed.input.adapters = {rowsOf(*adapters[0], {{0, 1}, {5, 6}}), rowsOf(*adapters[1], {{1, 3}}),
                            rowsOf(*adapters[2], {{4, 5}, {7, 8}})};
    steps.push_back(std::move(mixed));
    FixedStep two = context("context_2x32_adapters_2", 2, 32, vocab);
    two.input.adapters = {rowsOf(*adapters[0], {{0, 32}}), rowsOf(*adapters[1], {{32, 64}})};
    steps.push_back(std::move(two));
  }
  for (FixedStep& step : steps) {
    for (size_t i = 0; i < step.tables.size(); ++i) step.input.sequences[i].block_tables = step.tables[i];
  }
  return steps;
}

}  // namespace chorus
