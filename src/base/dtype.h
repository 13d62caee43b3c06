// Element types and their exact conversions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus {

class BackgroundThrottle;

enum class DType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt8,
  kUint8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
  kFloat8E4M3,
  kInt4  // signed, two per byte; only in packed weights, never in a tensor file
};

// Bytes per element; 0 for kInt4, which packs two elements into a byte.
size_t dtypeSize(DType dtype);
// The names of Hugging Face and TensorRT-LLM configs: "float32", "bfloat16", ...
std::string_view dtypeName(DType dtype);
std::optional<DType> dtypeFromName(std::string_view name);

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float toFloat(float x) { return x; }
inline float toFloat(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
float toFloat(f16 x);

// Rounds to nearest even and keeps NaN a NaN. The whole project uses this rounding.
inline bf16 toBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
f16 toF16(float x);

template <typename T>
T fromFloat(float x);
template <>
inline float fromFloat<float>(float x) {
  return x;
}
template <>
inline bf16 fromFloat<bf16>(float x) {
  return toBf16(x);
}
template <>
inline f16 fromFloat<f16>(float x) {
  return toF16(x);
}

// Element i of an array of a floating dtype (float32, float16, bfloat16, float64), as float.
float loadAsFloat(const void* data, DType dtype, size_t i);
// Converts count elements between floating dtypes, rounding to nearest even. src and dst must not overlap. throttle: is
// charged for the bytes of src; may be null.
void convertElements(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count,
                     BackgroundThrottle* throttle = nullptr);

}  // namespace chorus
