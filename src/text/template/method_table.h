// The type of method tables, and the table of Python's str.
#pragma once

#include <map>
#include <string_view>

#include "text/template/runtime.h"

namespace chorus::tmpl {

using Method = Value (*)(Runtime&, const Value& self, CallArgs&);
using MethodTable = std::map<std::string_view, Method>;

// Methods of Python's str.
const MethodTable& textMethods();

}  // namespace chorus::tmpl
