// Makes untrusted text safe for a log or a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace chorus {

// Whether printable() would return the text unchanged, apart from its size limit.
bool isPrintable(std::string_view text);

// Returns `text` as one line of valid UTF-8 that contains no terminal commands and nothing invisible or reordered:
//   control characters (C0, DEL, C1), line and paragraph separators, and invisible format characters (including those
//   that reorder text) become escapes such as \n, \x1b or \u{202e}
//   bytes that are not UTF-8 become `?`
// A result longer than max_bytes is cut and ends with "...".
std::string printable(std::string_view text, size_t max_bytes);

}  // namespace chorus
