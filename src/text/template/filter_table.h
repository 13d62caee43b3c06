// The two tables of filters.
#pragma once

#include <map>
#include <string_view>

#include "text/template/runtime.h"

namespace chorus::tmpl {

using FilterFunction = Value (*)(Runtime&, const Value& input, CallArgs&);
using FilterTable = std::map<std::string_view, FilterFunction>;

const FilterTable& textFilters();
const FilterTable& collectionFilters();

}  // namespace chorus::tmpl
