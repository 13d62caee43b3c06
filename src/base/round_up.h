// Rounding sizes up.
#pragma once

#include <concepts>
#include <type_traits>

namespace chorus {

// The smallest multiple of `to` that is at least n; n >= 0, to > 0.
template <std::integral T>
constexpr T roundUp(T n, std::type_identity_t<T> to) {
  return (n + to - 1) / to * to;
}

}  // namespace chorus
