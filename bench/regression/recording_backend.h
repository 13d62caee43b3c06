// A backend that forwards every op to another backend and records a line about it: the op's name, the shapes of its
// inputs and outputs, and the rows and ranks of its adapters.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/forwarding_backend.h"

namespace chorus {

class RecordingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // Returns one line per op since the last call.
  std::vector<std::string> take() { return std::exchange(lines_, {}); }

  void download(void* host, const void* device, size_t bytes, Stream stream) override;
  void prepare(const StepBatch& batch, StepContext& context) override;

#define CHORUS_OP(Name, function, name) \
  void function(const Name##Args& args, StepContext& context, Stream stream) override;
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  StepGroups groups_;  // of the step that was prepared last
  std::vector<std::string> lines_;
};

// The lines with consecutive repeats written once: "6 x {", the repeated lines, "}".
std::vector<std::string> folded(const std::vector<std::string>& lines);

}  // namespace chorus
