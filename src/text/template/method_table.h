// The table of str's methods.
#pragma once

#include <map>
#include <string_view>

#include "text/template/runtime.h"

namespace chorus::tmpl {

using Method = Value (*)(Runtime&, const Value& self, CallArgs&);
using MethodTable = std::map<std::string_view, Method>;

const MethodTable& textMethods();

}  // namespace chorus::tmpl
