// fmt's formatting engine is a template that every source file with log calls would instantiate. This declaration makes
// log.cc the only file that compiles it.
#pragma once

#include <fmt/format.h>

extern template void fmt::detail::vformat_to(buffer<char>&, basic_string_view<char>,
                                             basic_format_args<buffer_context<char>>, locale_ref);
