// A backend that measures the time of every op of another backend whose ops run before their calls return.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/forwarding_backend.h"

namespace chorus {

// The calls of one op that have equal `in` and `out`.
struct OpTime {
  std::string_view op;      // its name, or "prepare" or "download"
  int64_t in = 0, out = 0;  // columns of the matrix that it reads and of the one that it writes; 0: none
  int64_t calls = 0;
  double seconds = 0;
  // The work of the calls; both are 0 if it is not known, as for the experts of moe.
  //   - bytes: of matrices, weights, keys and values that the calls read and write. What they read and write counts
  //     twice.
  //   - flops: of the products of linear and attention. A multiply-add is two operations.
  double bytes = 0, flops = 0;
};

// Only one thread may use it, for downloads too.
class TimedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // The ops since the last call, in the order of their first calls.
  std::vector<OpTime> take() { return std::exchange(times_, {}); }

  void download(void* host, const void* device, size_t bytes, Stream stream) override;
  void prepare(const StepBatch& batch, StepContext& context) override;
#define CHORUS_OP(Name, function, name) \
  void function(const Name##Args& args, StepContext& context, Stream stream) override;
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  template <typename Call>
  void add(OpTime work, Call call);

  StepBatch batch_;  // of the step that was prepared last
  std::vector<OpTime> times_;
};

}  // namespace chorus
