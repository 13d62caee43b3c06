#pragma once

#include <string>

namespace chorus::tmpl {

// A number as Python's repr() prints it.
std::string floatRepr(double value);

}  // namespace chorus::tmpl
