#include "kernels/reference_backend.h"

#include "kernels/host_backend.h"

namespace chorus {
namespace {

struct ReferenceContext : StepContext {
  StepBatch batch;
};

const StepBatch& batchOf(const StepContext& context) {
  return static_cast<const ReferenceContext&>(context).batch;
}

class ReferenceBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string describe() const override {
    return "embedding: reference\ngather_rows: reference\nrms_norm: reference\nlinear: reference\n"
           "rope_cache: reference\nattention: reference\ngated_activation: reference\n";
  }
  std::unique_ptr<StepContext> createContext() override { return std::make_unique<ReferenceContext>(); }
  void prepare(const StepBatch& batch, StepContext& context) override {
    static_cast<ReferenceContext&>(context).batch = batch;
  }

  void embedding(const EmbeddingArgs& args, StepContext&, Stream) override { reference::embedding(args); }
  void gatherRows(const GatherRowsArgs& args, StepContext&, Stream) override { reference::gatherRows(args); }
  void rmsNorm(const RmsNormArgs& args, StepContext&, Stream) override { reference::rmsNorm(args); }
  void linear(const LinearArgs& args, StepContext&, Stream) override { reference::linear(args); }
  void ropeCache(const RopeCacheArgs& args, StepContext& context, Stream) override {
    reference::ropeCache(args, batchOf(context));
  }
  void attention(const AttentionArgs& args, StepContext& context, Stream) override {
    reference::attention(args, batchOf(context));
  }
  void gatedActivation(const GatedActivationArgs& args, StepContext&, Stream) override {
    reference::gatedActivation(args);
  }
};
}  // namespace

std::unique_ptr<Backend> createReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace chorus
