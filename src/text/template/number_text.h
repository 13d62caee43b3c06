// Texts as Python's int() and float() read them.
#pragma once

#include <optional>

#include "text/template/runtime.h"

namespace chorus::tmpl {

// Throws TemplateError on an integer that doesn't fit 64 bits.
std::optional<int64_t> parseInteger(Runtime& rt, std::string_view text, int base);
std::optional<double> parseFloat(Runtime& rt, std::string_view text);

}  // namespace chorus::tmpl
