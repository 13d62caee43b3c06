#include "models/model_weights.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace chorus {
namespace {

// A slot in the weight table: whether it is there, and the size of its weight.
struct Found {
  bool is_there = false;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t experts = 0;
};

Found foundAt(const SlotWeights& weights, const WeightSlot& slot) {
  if (slot.kind == SlotKind::kLinear) {
    const LinearWeights& linear = weights[slot.linear()];
    if (slot.isBias()) return {linear.bias != nullptr, linear.weight.out, 0};
    return {linear.weight.data != nullptr, linear.weight.out, linear.weight.in, linear.experts};
  }
  if (slot.kind == SlotKind::kNorm) {
    const NormWeights& norm = weights[slot.norm()];
    return {(slot.isBias() ? norm.bias : norm.weight) != nullptr, norm.size, 0};
  }
  const TableWeights& table = weights[slot.table()];
  return {table.table.data != nullptr, table.table.vocab, table.cols};
}

std::string text(const WeightSlot& slot) {
  const char* kind = slot.kind == SlotKind::kLinear ? "linear" : slot.kind == SlotKind::kNorm ? "norm" : "table";
  return fmt::format("{}{} {}", slot.isBias() ? "bias of " : "", kind, slot.id);
}

void checkNeed(const SlotWeights& weights, const SlotNeed& need, std::string_view where) {
  const Found found = foundAt(weights, need.slot);
  const auto fits = [](int64_t size, int64_t needed) { return needed == kAnySize || size == needed; };
  if (!found.is_there) {
    fail(ErrorCode::kInternal, "the weight table has no {} {}, which the structure needs", text(need.slot), where);
  }
  if (found.experts != need.experts) {
    fail(ErrorCode::kInternal, "the weight table gives {} {} {} experts, the structure asks for {}", text(need.slot),
         where, found.experts, need.experts);
  }
  if (fits(found.rows, need.rows) && fits(found.cols, need.cols)) return;
  fail(ErrorCode::kInternal, "the weight table gives {} {} [{}, {}], the structure asks for [{}, {}]", text(need.slot),
       where, found.rows, found.cols, need.rows, need.cols);
}

// Blocks add a bias to the products of these linears if there is one. The needs list each other bias.
bool mayHaveBias(LinearId id) {
  return id == LinearId::kQkv || id == LinearId::kDense || id == LinearId::kFc || id == LinearId::kProj;
}

void refuseBias(const SlotWeights& weights, LinearId id, std::span<const SlotNeed> needs, std::string_view where) {
  if (weights[id].bias == nullptr || mayHaveBias(id)) return;
  if (std::ranges::any_of(needs, [&](const SlotNeed& need) { return need.slot == slotOf(id).bias(); })) return;
  fail(ErrorCode::kInternal, "the weight table has a bias of {} {}, which the structure does not use", text(slotOf(id)),
       where);
}

void refuseOthers(const SlotWeights& weights, const WeightSlot& slot, std::span<const SlotNeed> needs,
                  std::string_view where) {
  const auto is_same = [&](const SlotNeed& need) { return need.slot == slot; };
  if (!foundAt(weights, slot).is_there || std::any_of(needs.begin(), needs.end(), is_same)) return;
  fail(ErrorCode::kInternal, "the weight table has {} {}, which the structure does not use", text(slot), where);
}
}  // namespace

void checkSlots(const SlotWeights& weights, std::span<const SlotNeed> needs, std::string_view where) {
  for (const SlotNeed& need : needs) checkNeed(weights, need, where);
  for (int id = 0; id < kNumLinears; ++id) {
    refuseOthers(weights, slotOf(static_cast<LinearId>(id)), needs, where);
    refuseBias(weights, static_cast<LinearId>(id), needs, where);
  }
  for (int id = 0; id < kNumNorms; ++id) {
    refuseOthers(weights, slotOf(static_cast<NormId>(id)), needs, where);
    refuseOthers(weights, slotOf(static_cast<NormId>(id)).bias(), needs, where);
  }
  for (int id = 0; id < kNumTables; ++id) refuseOthers(weights, slotOf(static_cast<TableId>(id)), needs, where);
}

}  // namespace chorus
