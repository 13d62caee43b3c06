// Checks of constructors and setters of the public API.
#pragma once

#include <fmt/format.h>

#include <stdexcept>

namespace chorus::executor {

// TensorRT-LLM reports a failed check as "Assertion failed: " and the condition; the value is added for the reader.
template <typename T>
void check(bool condition, const char* text, const char* field, const T& value) {
  if (!condition) throw std::invalid_argument(fmt::format("Assertion failed: {} ({} is {})", text, field, value));
}

}  // namespace chorus::executor
