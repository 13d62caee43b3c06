// Texts as Python's int() and float() read them.
#pragma once

#include <optional>

#include "text/template/runtime.h"

namespace chorus::tmpl {

// An integer, wide if need be; nothing when the text is none. Throws TemplateError on a wide one whose base is not 10.
std::optional<Value> parseInteger(Runtime& rt, std::string_view text, int base);
std::optional<double> parseFloat(Runtime& rt, std::string_view text);

}  // namespace chorus::tmpl
