#include "kernels/reference_backend.h"

#include "kernels/host_backend.h"

namespace chorus {
namespace {

struct ReferenceContext : StepContext {
  StepBatch batch;
};

const StepBatch& batchOf(const StepContext& context) { return static_cast<const ReferenceContext&>(context).batch; }

class ReferenceBackend final : public HostBackend {
 public:
  ReferenceBackend() : HostBackend(BackendOptions()) {}
  std::string_view name() const override { return "reference"; }
  const VariantRecord& used() const override { return used_; }
  std::unique_ptr<StepContext> createContext() override { return std::make_unique<ReferenceContext>(); }
  void prepare(const StepBatch& batch, StepContext& context) override {
    static_cast<ReferenceContext&>(context).batch = batch;
  }

#define CHORUS_OP(Name, function, name)                                          \
  void function(const Name##Args& args, StepContext& context, Stream) override { \
    used_.add({Op::k##Name, std::nullopt, std::nullopt});                        \
    run(&reference::function, args, batchOf(context));                           \
  }
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  // Some ops take the step's batch, most do not.
  template <typename Args>
  static void run(void (*op)(const Args&), const Args& args, const StepBatch&) {
    op(args);
  }
  template <typename Args>
  static void run(void (*op)(const Args&, const StepBatch&), const Args& args, const StepBatch& batch) {
    op(args, batch);
  }

  VariantRecord used_;
};
}  // namespace

std::unique_ptr<Backend> createReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace chorus
