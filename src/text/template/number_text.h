// Parses numbers as Python's int() and float() do.
#pragma once

#include <optional>

#include "text/template/runtime.h"

namespace chorus::tmpl {

// Returns the integer, wide if necessary; nullopt if the text is not an integer. Throws TemplateError for a wide
// integer whose base is not 10.
std::optional<Value> parseInteger(Runtime& rt, std::string_view text, int base);
std::optional<double> parseFloat(Runtime& rt, std::string_view text);

}  // namespace chorus::tmpl
