// Chorus: what a check of an adapter finds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace chorus::executor {

struct AdapterTensorReport {
  enum class Verdict {
    kUSED,
    kLEFT_OUT,  // not needed: training state, values that the base model has too, parts of the model that are not
                // served
    kREFUSED
  };
  std::string name;
  std::string dataType;  // "float32", "bfloat16" and so on
  std::vector<std::int64_t> shape;
  Verdict verdict = Verdict::kUSED;
  std::string target;  // the weights that it changes, by their names in the checkpoint; empty if it is not used
  std::string reason;  // of a refusal
};

struct AdapterReport {
  bool accepted = false;
  std::string error;  // of the first refusal; empty if it is accepted
  // "lora", "dora", or "weights" for one without low-rank matrices; empty if the adapter could not be read.
  std::string kind;
  std::int64_t maxRank = 0;
  std::string contentHash;  // empty if it is refused
  // Every tensor of a PEFT adapter, in the order of the file. Empty for an archive, and for a file that is not
  // readable.
  std::vector<AdapterTensorReport> tensors;
  // Cost of an accepted adapter, in bytes. On the CPU the device level refers to the weights of the host level and
  // takes no memory of its own.
  std::int64_t hostBytes = 0;
  std::int64_t deviceBytes = 0;
};

}  // namespace chorus::executor
