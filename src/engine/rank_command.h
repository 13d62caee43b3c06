// Commands of a rank group to its ranks, encoded as plain bytes. A command holds numbers and ids but no addresses, so a
// rank may be a thread of this process or, on a machine of the same byte order, another process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/step_input.h"

namespace chorus {

enum class RankCommand : uint32_t {
  kStep,     // run a step
  kPrepare,  // pack the rank's share of an adapter and keep it under its id
  kMeasure,  // compute the bytes that the share would take
  kCompose,  // keep a composition of adapters under a new id
  kDrop,     // forget an adapter
};

// Term of a composition.
struct ComposedTerm {
  AdapterId adapter{};
  float weight = 1.0f;
};

// Replaces `bytes` by the command. kv_groups: number of KV groups of the model, and so of block tables of a sequence.
void encodeStep(const StepInput& input, int32_t kv_groups, std::vector<std::byte>& bytes);
std::vector<std::byte> encodeCompose(AdapterId adapter, std::span<const ComposedTerm> terms);
// kPrepare, kMeasure or kDrop. Allocates nothing.
using AdapterCommandBytes = std::array<std::byte, 16>;
AdapterCommandBytes encodeAdapter(RankCommand command, AdapterId adapter);

// The decoders throw Error(kInternal) if the bytes are not a command of this form.
RankCommand commandOf(std::span<const std::byte> bytes);
AdapterId decodeAdapter(std::span<const std::byte> bytes);                        // kPrepare, kMeasure, kDrop, kCompose
std::vector<ComposedTerm> decodeComposedTerms(std::span<const std::byte> bytes);  // kCompose

// Decodes kStep. Keeps its memory from step to step.
class StepDecoder {
 public:
  // The result is valid until the next call, and does not point into `bytes`.
  const StepInput& decode(std::span<const std::byte> bytes);

 private:
  StepInput input_;
  std::vector<int32_t> table_lengths_;  // of each sequence: entries of each of its block tables
  std::vector<int32_t> tables_;         // entries of all sequences' block tables
};

}  // namespace chorus
