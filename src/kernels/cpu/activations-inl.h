// The activations of an MLP as vector functions, compiled once for each instruction set.
#if defined(CHORUS_CPU_ACTIVATIONS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_CPU_ACTIVATIONS_INL
#undef CHORUS_CPU_ACTIVATIONS_INL
#else
#define CHORUS_CPU_ACTIVATIONS_INL
#endif

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {

// x / (1 + e^-u). This is silu for u = x, and the tanh form of gelu for the u that GeluTanh computes, because (1 +
// tanh(u / 2)) / 2 = 1 / (1 + e^-u).
HWY_INLINE FloatVec timesSigmoid(FloatVec x, FloatVec u) {
  return hn::Div(x, hn::Add(hn::Set(Floats(), 1.0f), exponential(hn::Neg(u))));
}

struct Silu {
  static HWY_INLINE FloatVec apply(FloatVec x) { return timesSigmoid(x, x); }
};

struct GeluTanh {
  static HWY_INLINE FloatVec apply(FloatVec x) {
    const Floats d;
    const FloatVec cubic = mulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(x, x)), x, x);
    return timesSigmoid(x, hn::Mul(hn::Set(d, 2 * 0.79788456f), cubic));
  }
};

struct Gelu {
  static HWY_INLINE FloatVec apply(FloatVec x) {
    const Floats d;
    const FloatVec half = hn::Mul(hn::Set(d, 0.5f), x);
    return hn::Mul(half, hn::Add(hn::Set(d, 1.0f), errorFunction(hn::Mul(x, hn::Set(d, 0.70710678f)))));
  }
};

struct Relu {
  static HWY_INLINE FloatVec apply(FloatVec x) { return hn::Max(x, hn::Zero(Floats())); }
};

struct ReluSquared {
  static HWY_INLINE FloatVec apply(FloatVec x) {
    const FloatVec positive = Relu::apply(x);
    return hn::Mul(positive, positive);
  }
};

struct Tanh {
  static HWY_INLINE FloatVec apply(FloatVec x) { return hyperbolicTangent(x); }
};

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
#endif
