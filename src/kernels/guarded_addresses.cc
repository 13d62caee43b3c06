#include "kernels/guarded_addresses.h"

namespace chorus {

void GuardedAddresses::translate(EmbeddingArgs& args) const { each(args.table, args.out); }

void GuardedAddresses::translate(PositionEmbeddingArgs& args) const { each(args.table, args.x); }

void GuardedAddresses::translate(ScaleArgs& args) const { each(args.x); }

void GuardedAddresses::translate(GatherRowsArgs& args) const { each(args.x, args.out); }

void GuardedAddresses::translate(RmsNormArgs& args) const {
  each(args.residual, args.delta, args.bias, args.weight, args.y);
}

void GuardedAddresses::translate(LayerNormArgs& args) const {
  each(args.residual, args.delta, args.bias, args.weight, args.norm_bias, args.y);
}

void GuardedAddresses::translate(LinearArgs& args) const { each(args.x, args.weight, args.y); }

void GuardedAddresses::translate(RowSquaresArgs& args) const { each(args.x, args.bias, args.squares); }

void GuardedAddresses::translate(KvWriteArgs& args) const {
  each(args.qkv, args.bias, args.norms.query, args.norms.key, args.norms.row_squares, args.rope.cos, args.rope.sin,
       args.kv, args.query_scales);
}

void GuardedAddresses::translate(AttentionArgs& args) const { each(args.q, args.score.slopes, args.kv, args.out); }

void GuardedAddresses::translate(ActivationArgs& args) const { each(args.x, args.bias); }

void GuardedAddresses::translate(GatedActivationArgs& args) const { each(args.fc_gate, args.bias, args.out); }

void GuardedAddresses::translate(MoeArgs& args) const {
  each(args.x, args.logits, args.fc, args.proj, args.shared, args.shared_gate, args.workspace, args.out);
}

template <typename T>
std::span<const T> GuardedGroups::keep(std::span<const T> terms, std::vector<std::vector<T>>& kept,
                                       const GuardedAddresses& addresses) {
  auto& copy = kept.emplace_back(terms.begin(), terms.end());
  for (T& term : copy) addresses.translate(term);
  return copy;
}

GuardedGroups::GuardedGroups(const StepGroups& groups, const GuardedAddresses& addresses)
    : embedding_(groups.embedding.begin(), groups.embedding.end()),
      linear_(groups.linear.begin(), groups.linear.end()),
      moe_(groups.moe.begin(), groups.moe.end()),
      norm_(groups.norm.begin(), groups.norm.end()) {
  for (EmbeddingGroup& group : embedding_) {
    addresses.translate(group);
    group.parts = keep(group.parts, embedding_parts_, addresses);
  }
  for (RowGroup& group : linear_) {
    addresses.translate(group);
    group.parts = keep(group.parts, lora_terms_, addresses);
  }
  for (MoeGroup& group : moe_) {
    for (ExpertTerms* experts : {&group.fc, &group.proj}) {
      experts->terms = keep(experts->terms, lora_terms_, addresses);
    }
  }
  for (NormGroup& group : norm_) addresses.translate(group);
}

}  // namespace chorus
