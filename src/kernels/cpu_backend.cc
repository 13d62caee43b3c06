#include "kernels/cpu_backend.h"

#include "kernels/activation/cpu.h"
#include "kernels/attention/cpu.h"
#include "kernels/cpu/workspace.h"
#include "kernels/default_isa.h"
#include "kernels/embedding/cpu.h"
#include "kernels/gated_activation/cpu.h"
#include "kernels/host_backend.h"
#include "kernels/kv_write/cpu.h"
#include "kernels/layer_norm/cpu.h"
#include "kernels/linear/cpu.h"
#include "kernels/moe/cpu.h"
#include "kernels/position_embedding/cpu.h"
#include "kernels/rms_norm/cpu.h"
#include "kernels/row_squares/cpu.h"
#include "kernels/scale/cpu.h"

namespace chorus {
namespace {

struct CpuContext : StepContext {
  StepBatch batch;
  AttentionPlans attention;
};

CpuContext& own(StepContext& context) { return static_cast<CpuContext&>(context); }

std::function<void(int thread)> placement(const std::vector<NumaNode>& nodes, int threads) {
  if (nodes.empty()) return nullptr;
  return [nodes, threads](int thread) { runThreadOn(nodeOfThread(nodes, thread, threads)); };
}

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(int threads, Isa isa, const BackendOptions& options)
      : HostBackend(options),
        pool_(threads, options.spin_us, placement(options.nodes, threads)),
        workspace_(pool_, isa) {}

  std::string_view name() const override { return "cpu"; }
  const VariantRecord& used() const override { return workspace_.used; }
  std::unique_ptr<StepContext> createContext() override { return std::make_unique<CpuContext>(); }
  void prepare(const StepBatch& batch, StepContext& context) override {
    own(context).batch = batch;
    own(context).attention.clear();
  }

  void embedding(const EmbeddingArgs& args, StepContext& context, Stream) override {
    embeddingCpu(args, own(context).batch, workspace_);
  }
  void positionEmbedding(const PositionEmbeddingArgs& args, StepContext& context, Stream) override {
    positionEmbeddingCpu(args, own(context).batch, workspace_);
  }
  void rowSquares(const RowSquaresArgs& args, StepContext&, Stream) override { rowSquaresCpu(args, workspace_); }
  void scale(const ScaleArgs& args, StepContext&, Stream) override { scaleCpu(args, workspace_); }
  void gatherRows(const GatherRowsArgs& args, StepContext& context, Stream) override {
    gatherRowsCpu(args, own(context).batch, workspace_);
  }
  void rmsNorm(const RmsNormArgs& args, StepContext& context, Stream) override {
    rmsNormCpu(args, own(context).batch, workspace_);
  }
  void layerNorm(const LayerNormArgs& args, StepContext& context, Stream) override {
    layerNormCpu(args, own(context).batch, workspace_);
  }
  void linear(const LinearArgs& args, StepContext& context, Stream) override {
    linearCpu(args, own(context).batch, workspace_, linear_plan_);
  }
  void kvWrite(const KvWriteArgs& args, StepContext& context, Stream) override {
    kvWriteCpu(args, own(context).batch, workspace_);
  }
  void attention(const AttentionArgs& args, StepContext& context, Stream) override {
    attentionCpu(args, own(context).batch, workspace_, own(context).attention);
  }
  void activation(const ActivationArgs& args, StepContext&, Stream) override { activationCpu(args, workspace_); }
  void gatedActivation(const GatedActivationArgs& args, StepContext&, Stream) override {
    gatedActivationCpu(args, workspace_);
  }
  void moe(const MoeArgs& args, StepContext& context, Stream) override {
    moeCpu(args, own(context).batch, workspace_, moe_plan_, linear_plan_);
  }

 private:
  ThreadPool pool_;
  CpuWorkspace workspace_;
  LinearPlan linear_plan_;
  MoePlan moe_plan_;
};
}  // namespace

std::unique_ptr<Backend> createCpuBackend(const BackendOptions& options) {
  const Isa isa = options.isa ? requireIsa(isaName(*options.isa)) : defaultIsa();
  return std::make_unique<CpuBackend>(options.threads > 0 ? options.threads : availableCores(), isa, options);
}

}  // namespace chorus
