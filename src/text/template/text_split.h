// Python's str.split, str.rsplit and str.splitlines.
#pragma once

#include "text/template/runtime.h"

namespace chorus::tmpl {

Value splitText(Runtime& rt, std::string_view text, CallArgs& args, bool from_right);
Value splitLines(Runtime& rt, std::string_view text, CallArgs& args);

}  // namespace chorus::tmpl
