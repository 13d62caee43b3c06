// The tables of methods.
#pragma once

#include <map>
#include <string_view>

#include "text/template/runtime.h"

namespace chorus::tmpl {

using Method = Value (*)(Runtime&, const Value& self, CallArgs&);
using MethodTable = std::map<std::string_view, Method>;

// Those of str.
const MethodTable& textMethods();

}  // namespace chorus::tmpl
