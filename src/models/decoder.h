// A decoder-only network over backend ops: one step from tokens to logits, on one rank.
#pragma once

#include <vector>

#include "models/activations.h"
#include "models/adapter_groups.h"
#include "models/blocks/attention.h"
#include "models/blocks/head.h"
#include "models/model_spec.h"
#include "models/model_weights.h"
#include "models/rank_links.h"
#include "models/step_input.h"

namespace chorus {

class Decoder {
 public:
  // spec: the rank's (rankSpec). tables: one for each layer, of its attention's spec. The communicators in links must
  // outlive the decoder. Throws Error(kInternal) if the weights do not fit the spec.
  Decoder(ModelSpec spec, const VocabularyShape& vocabulary, ModelWeights weights, std::vector<PositionTables> tables,
          const RankLinks& links);

  // Runs one step, together with the other ranks.
  //   - kv: one for each layer of this stage.
  //   - adapters, step: of the same input.
  //   - sink: on every rank of the last stage, it receives the logits of input.logits_rows, logitsWidth() columns each.
  void run(const StepInput& input, std::span<const KvLayer> kv, const DecoderActivations& activations,
           const AdapterGroups& adapters, Backend& backend, StepContext& step, Stream stream,
           const LogitsSink& sink) const;

 private:
  void checkWeights() const;

  ModelSpec spec_;
  VocabularyShape vocabulary_;
  ModelWeights weights_;
  std::vector<PositionTables> tables_;
  RankLinks links_;
};

}  // namespace chorus
