#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/softmax_kernels.cc"
#include <hwy/foreach_target.h>
#include "kernels/attention/attention.h"
#include "kernels/attention/softmax_kernels.h"
#include "kernels/cpu/row_sums-inl.h"

#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

constexpr int kVectors = static_cast<int>(kAttentionRun / kFloatLanes);
static_assert(sizeof(SoftmaxState::sums) == kSumLanes * sizeof(float));
constexpr float kLog2E = 1.44269504f;
// Running maxima of a row. With a single one, each maximum would wait for the one before.
constexpr int kMaxima = 4;
static_assert(kVectors % kMaxima == 0);

// 2^x for x <= 0, within 2.5 ulp; 2^0 is exactly 1, and the result is 0 below -126. NaN stays NaN.
HWY_INLINE FloatVec powerOfTwo(FloatVec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // A float this large has no bits after the binary point, so adding it rounds x to an integer. The last bits of the
  // sum are then the exponent of 2^round(x).
  const FloatVec large = hn::Set(d, 0x1.8p23f + 127);
  const FloatVec rounded = hn::Add(x, large);
  const FloatVec r = hn::Sub(x, hn::Sub(rounded, large));
  // The polynomial of least relative error on [-1/2, 1/2] among those that are 1 at 0. Three short chains instead of
  // one long one: the code around has too little other work to fill the waits between dependent multiply-adds.
  const FloatVec square = hn::Mul(r, r);
  const FloatVec low = mulAdd(hn::Set(d, 0.693146978f), r, hn::Set(d, 1.0f));
  const FloatVec middle = mulAdd(hn::Set(d, 0.0555073374f), r, hn::Set(d, 0.240222421f));
  const FloatVec high = mulAdd(hn::Set(d, 1.32647272e-3f), r, hn::Set(d, 9.67151264e-3f));
  const FloatVec p = mulAdd(mulAdd(high, square, middle), square, low);
  const FloatVec scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, rounded)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, scale));
}
HWY_INLINE float powerOfTwo(float x) { return hn::GetLane(powerOfTwo(hn::Set(Floats(), x))); }

void clear(SoftmaxState& state, float* out, int64_t head_size) {
  state = {{}, -std::numeric_limits<float>::infinity()};
  std::fill(out, out + head_size, 0.0f);
}

// The forms of a score. comparable() makes of a product what is compared to find the largest score, and belowLargest()
// makes of it and of the largest one the score minus the largest score, in units of ln 2. For the largest one itself
// that is exactly 0.

// The product times a factor that is not negative: products are compared as they are.
struct ScaledScore {
  static constexpr bool kReplaces = false;  // whether what is compared takes the place of the products
  FloatVec factor;
  HWY_INLINE explicit ScaledScore(const SoftmaxRows& rows) : factor(hn::Set(Floats(), rows.scale * kLog2E)) {}
  HWY_INLINE void setRow(const SoftmaxRows&, int) {}
  HWY_INLINE FloatVec comparable(FloatVec product, FloatVec /*slot*/) const { return product; }
  HWY_INLINE FloatVec score(FloatVec product) const { return hn::Mul(product, factor); }
  HWY_INLINE FloatVec belowLargest(FloatVec product, FloatVec largest) const {
    return hn::Mul(hn::Sub(product, largest), factor);
  }
};

// All other scores.
struct ModifiedScore {
  static constexpr bool kReplaces = true;
  bool capped;
  FloatVec factor, cap, slope, distance;  // distance: position of slot 0 - position of the query
  HWY_INLINE explicit ModifiedScore(const SoftmaxRows& rows)
      : capped(rows.softcap != 0),
        factor(hn::Set(Floats(), capped ? rows.scale / rows.softcap : rows.scale * kLog2E)),
        cap(hn::Set(Floats(), rows.softcap * kLog2E)),
        slope(hn::Zero(Floats())),
        distance(slope) {}
  HWY_INLINE void setRow(const SoftmaxRows& rows, int row) {
    slope = hn::Set(Floats(), rows.slopes == nullptr ? 0.0f : rows.slopes[row] * kLog2E);
    distance = hn::Set(Floats(), static_cast<float>(1 - rows.end[row]));
  }
  HWY_INLINE FloatVec comparable(FloatVec product, FloatVec slot) const {
    FloatVec score = hn::Mul(product, factor);
    if (capped) score = hn::Mul(cap, hyperbolicTangent(score));
    return mulAdd(slope, hn::Add(slot, distance), score);
  }
  HWY_INLINE FloatVec score(FloatVec compared) const { return compared; }
  HWY_INLINE FloatVec belowLargest(FloatVec score, FloatVec largest) const { return hn::Sub(score, largest); }
};

// The slots of a run that a query attends to, relative to the run.
struct RunSlots {
  int64_t begin, end;

  bool whole() const { return begin <= 0 && end >= kAttentionRun; }
  // `attended` in the lanes of slots that the query attends to, `other` in the rest; v: the vector within the run.
  HWY_INLINE FloatVec select(int v, FloatVec attended, FloatVec other) const {
    const Floats d;
    const FloatVec slot = hn::Iota(d, static_cast<float>(v * kFloatLanes));
    const auto from_begin = hn::Ge(slot, hn::Set(d, static_cast<float>(begin)));
    const auto before_end = hn::Lt(slot, hn::Set(d, static_cast<float>(end)));
    return hn::IfThenElse(hn::And(from_begin, before_end), attended, other);
  }
};

// The slots that a query attends to.
struct RowSlots {
  int64_t begin, end;  // empty: both 0

  RowSlots(const SoftmaxRows& rows, int row)
      : begin(std::max<int64_t>(0, rows.begin[row])), end(std::min(rows.runs * kAttentionRun, rows.end[row])) {
    if (begin >= end) begin = end = 0;
  }
  bool empty() const { return begin == end; }
  // The runs with slots that the query attends to: [firstRun(), endRun()).
  int64_t firstRun() const { return begin / kAttentionRun; }
  int64_t endRun() const { return (end + kAttentionRun - 1) / kAttentionRun; }
  RunSlots ofRun(int64_t run) const { return {begin - run * kAttentionRun, end - run * kAttentionRun}; }
};

// Updates the maxima with a run. kMasked: the query does not attend to all slots.
template <bool kMasked, class Score>
HWY_INLINE void maximaOfRun(float* scores, int64_t first_slot, const RunSlots& slots, const Score& form,
                            FloatVec (&maxima)[kMaxima]) {
  const Floats d;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const FloatVec slot = hn::Iota(d, static_cast<float>(first_slot + v * kFloatLanes));
    FloatVec score = form.comparable(hn::LoadU(d, scores + v * kFloatLanes), slot);
    if constexpr (kMasked) score = slots.select(v, score, hn::Set(d, -std::numeric_limits<float>::infinity()));
    if constexpr (Score::kReplaces) hn::StoreU(score, d, scores + v * kFloatLanes);
    maxima[v % kMaxima] = hn::Max(maxima[v % kMaxima], score);
  }
}

// The largest Score::comparable() of a row.
template <class Score>
HWY_INLINE float largestOfRow(const SoftmaxRows& rows, int row, Score& form) {
  const Floats d;
  const RowSlots slots(rows, row);
  form.setRow(rows, row);
  FloatVec maxima[kMaxima];
  for (FloatVec& max : maxima) max = hn::Set(d, -std::numeric_limits<float>::infinity());
  float* scores = rows.scores + row * int64_t{kAttentionRun};
  for (int64_t run = slots.firstRun(); run < slots.endRun(); ++run) {
    const RunSlots some = slots.ofRun(run);
    if (some.whole()) {
      maximaOfRun<false>(scores + run * rows.run_stride, run * kAttentionRun, some, form, maxima);
    } else {
      maximaOfRun<true>(scores + run * rows.run_stride, run * kAttentionRun, some, form, maxima);
    }
  }
  for (int i = 1; i < kMaxima; ++i) maxima[0] = hn::Max(maxima[0], maxima[i]);
  return hn::GetLane(hn::MaxOfLanes(d, maxima[0]));
}

// Replaces the scores of a run by weights and adds them to the sums. All lanes are summed whatever slots the query
// attends to: a masked slot adds exactly 0, so the order of the sum never changes.
template <bool kMasked, class Score>
HWY_INLINE void weighRun(float* scores, const RunSlots& slots, const Score& form, FloatVec largest,
                         FloatVec (&sums)[kSumVectors]) {
  const Floats d;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    FloatVec weight = powerOfTwo(form.belowLargest(hn::LoadU(d, scores + v * kFloatLanes), largest));
    if constexpr (kMasked) weight = slots.select(v, weight, hn::Zero(d));
    hn::StoreU(weight, d, scores + v * kFloatLanes);
    sums[v % kSumVectors] = hn::Add(sums[v % kSumVectors], weight);
  }
}

// Replaces the scores of a row and sets its state. It must not use what Score::setRow() sets, because the next row's
// comes before. largest: see largestOfRow.
template <class Score>
HWY_INLINE void weighRow(const SoftmaxRows& rows, int row, const Score& form, float largest) {
  const Floats d;
  const FloatVec all_largest = hn::Set(d, largest);
  const RowSlots slots(rows, row);
  FloatVec sums[kSumVectors];
  for (FloatVec& sum : sums) sum = hn::Zero(d);
  float* scores = rows.scores + row * int64_t{kAttentionRun};
  for (int64_t run = 0; run < rows.runs; ++run, scores += rows.run_stride) {
    const RunSlots some = slots.ofRun(run);
    if (some.whole()) {
      weighRun<false>(scores, some, form, all_largest, sums);
    } else if (run >= slots.firstRun() && run < slots.endRun()) {
      weighRun<true>(scores, some, form, all_largest, sums);
    } else {
      for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Zero(d), d, scores + v * kFloatLanes);
    }
  }
  SoftmaxState& state = *reinterpret_cast<SoftmaxState*>(rows.states + row * rows.stride);
  for (int v = 0; v < kSumVectors; ++v) hn::StoreU(sums[v], d, state.sums + v * kFloatLanes);
  state.max = slots.empty() ? -std::numeric_limits<float>::infinity() : hn::GetLane(form.score(all_largest));
}

template <class Score>
HWY_INLINE void weighRows(const SoftmaxRows& rows) {
  Score form(rows);
  // The largest score of the next row is found before the weights of a row are computed, so that no weights wait for
  // it.
  float next = largestOfRow(rows, 0, form);
  for (int r = 0; r < rows.count; ++r) {
    const float largest = next;
    if (r + 1 < rows.count) next = largestOfRow(rows, r + 1, form);
    weighRow(rows, r, form, largest);
  }
}

void weigh(const SoftmaxRows& rows) {
  if (rows.softcap == 0 && rows.slopes == nullptr && rows.scale >= 0) return weighRows<ScaledScore>(rows);
  weighRows<ModifiedScore>(rows);
}

void merge(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size) {
  const Floats d;
  const float max = std::max(state.max, later.max);
  const float scale = powerOfTwo(state.max - max), later_scale = powerOfTwo(later.max - max);
  state.max = max;
  const FloatVec factor = hn::Set(d, scale), later_factor = hn::Set(d, later_scale);
  const auto sum = [&](FloatVec a, FloatVec b) { return mulAdd(b, later_factor, hn::Mul(a, factor)); };
  for (int64_t i = 0; i < kSumLanes; i += kFloatLanes) {
    hn::StoreU(sum(hn::LoadU(d, state.sums + i), hn::LoadU(d, later.sums + i)), d, state.sums + i);
  }
  int64_t i = 0;
  for (; i + kFloatLanes <= head_size; i += kFloatLanes) {
    hn::StoreU(sum(hn::LoadU(d, out + i), hn::LoadU(d, later_out + i)), d, out + i);
  }
  const int64_t left = head_size - i;
  if (left > 0) storeSome(sum(loadSome(out + i, left), loadSome(later_out + i, left)), left, out + i);
}

void finish(const SoftmaxState& state, const float* out, int64_t head_size, float* result) {
  const Floats d;
  FloatVec sums[kSumVectors];
  for (int v = 0; v < kSumVectors; ++v) sums[v] = hn::LoadU(d, state.sums + v * kFloatLanes);
  const FloatVec sum = hn::Set(d, sumOfLanes(sums));
  // An underflow's -0 may have become +0 by adding a masked slot; adding +0 makes both +0.
  const FloatVec zero = hn::Zero(d);
  int64_t i = 0;
  for (; i + kFloatLanes <= head_size; i += kFloatLanes) {
    hn::StoreU(hn::Add(hn::Div(hn::LoadU(d, out + i), sum), zero), d, result + i);
  }
  const int64_t left = head_size - i;
  if (left > 0) storeSome(hn::Add(hn::Div(loadSome(out + i, left), sum), zero), left, result + i);
}

bool any(const std::byte* words, int64_t count, uint32_t mask) {
  const hn::RebindToUnsigned<Floats> d;
  const auto bits = hn::Set(d, mask);
  auto found = hn::Zero(d);
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    const auto word = hn::LoadU(d, reinterpret_cast<const uint32_t*>(words) + i);
    found = hn::Or(found, hn::VecFromMask(d, hn::Eq(hn::And(word, bits), bits)));
  }
  bool result = !hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
  for (; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, words + i * 4, sizeof word);
    result |= (word & mask) == mask;
  }
  return result;
}

const SoftmaxKernels* kernels() {
  static const SoftmaxKernels table = {&clear, &weigh, &merge, &finish, &any};
  return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const SoftmaxKernels*> softmaxKernels() { CHORUS_ISA_TABLE(const SoftmaxKernels*, kernels); }
}  // namespace chorus
#endif
