#include "base/dtype.h"

#include <cassert>
#include <cstring>

#include "base/background_throttle.h"
#include "base/error.h"

namespace chorus {
namespace {
struct Row {
  DType dtype;
  size_t size;
  std::string_view name;
};
constexpr Row kRows[] = {{DType::kFloat32, 4, "float32"},
                         {DType::kFloat16, 2, "float16"},
                         {DType::kBFloat16, 2, "bfloat16"},
                         {DType::kFloat64, 8, "float64"},
                         {DType::kInt8, 1, "int8"},
                         {DType::kUint8, 1, "uint8"},
                         {DType::kInt16, 2, "int16"},
                         {DType::kInt32, 4, "int32"},
                         {DType::kInt64, 8, "int64"},
                         {DType::kBool, 1, "bool"},
                         {DType::kFloat8E4M3, 1, "float8_e4m3"},
                         {DType::kInt4, 0, "int4"}};

const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

template <typename Src, typename Dst>
void convertAs(const void* src, void* dst, size_t count) {
  const auto* in = static_cast<const Src*>(src);
  auto* out = static_cast<Dst*>(dst);
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Src, double>) {
      out[i] = fromFloat<Dst>(static_cast<float>(in[i]));
    } else {
      out[i] = fromFloat<Dst>(toFloat(in[i]));
    }
  }
}

template <typename Src>
void convertTo(const void* src, void* dst, DType dst_dtype, size_t count) {
  switch (dst_dtype) {
    case DType::kFloat32:
      return convertAs<Src, float>(src, dst, count);
    case DType::kBFloat16:
      return convertAs<Src, bf16>(src, dst, count);
    case DType::kFloat16:
      return convertAs<Src, f16>(src, dst, count);
    default:
      fail(ErrorCode::kUnsupported, "cannot convert to {}", dtypeName(dst_dtype));
  }
}
}  // namespace

size_t dtypeSize(DType dtype) { return row(dtype).size; }
std::string_view dtypeName(DType dtype) { return row(dtype).name; }

std::optional<DType> dtypeFromName(std::string_view name) {
  for (const Row& r : kRows) {
    if (r.name == name) return r.dtype;
  }
  return std::nullopt;
}

float toFloat(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

f16 toF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // at least 65520: rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal result: adding 0.5 rounds to a multiple of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

float loadAsFloat(const void* data, DType dtype, size_t i) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(data)[i];
    case DType::kBFloat16:
      return toFloat(static_cast<const bf16*>(data)[i]);
    case DType::kFloat16:
      return toFloat(static_cast<const f16*>(data)[i]);
    case DType::kFloat64:
      return static_cast<float>(static_cast<const double*>(data)[i]);
    default:
      fail(ErrorCode::kUnsupported, "{} is not a floating type", dtypeName(dtype));
  }
}

namespace {

void convertPiece(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count) {
  if (src_dtype == dst_dtype) {
    std::memcpy(dst, src, count * dtypeSize(src_dtype));
    return;
  }
  switch (src_dtype) {
    case DType::kFloat32:
      return convertTo<float>(src, dst, dst_dtype, count);
    case DType::kBFloat16:
      return convertTo<bf16>(src, dst, dst_dtype, count);
    case DType::kFloat16:
      return convertTo<f16>(src, dst, dst_dtype, count);
    case DType::kFloat64:
      return convertTo<double>(src, dst, dst_dtype, count);
    default:
      fail(ErrorCode::kUnsupported, "cannot convert from {}", dtypeName(src_dtype));
  }
}

}  // namespace

void convertElements(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count,
                     BackgroundThrottle* throttle) {
  const size_t src_size = dtypeSize(src_dtype), dst_size = dtypeSize(dst_dtype);
  inPieces(static_cast<int64_t>(count), src_size, throttle, [&](int64_t begin, int64_t n) {
    const auto at = static_cast<size_t>(begin);
    convertPiece(static_cast<const std::byte*>(src) + at * src_size, src_dtype,
                 static_cast<std::byte*>(dst) + at * dst_size, dst_dtype, static_cast<size_t>(n));
  });
}

}  // namespace chorus
