// fmt's formatting engine is a template that every source which logs would compile anew: here it is compiled once, in
// log.cc.
#pragma once

#include <fmt/format.h>

extern template void fmt::detail::vformat_to(buffer<char>&, basic_string_view<char>,
                                             basic_format_args<buffer_context<char>>, locale_ref);
