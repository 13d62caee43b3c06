// Foreign text made fit for a log or a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace chorus {

// Whether printable() leaves the text as it is, whatever its size.
bool isPrintable(std::string_view text);

// One line of valid UTF-8 that no terminal takes for a command and no reader for another text: control characters (C0,
// DEL, C1), line and paragraph separators, and invisible format characters, those that reorder text among them, become
// their escapes, as \n, \x1b or \u{202e}; bytes that are not UTF-8 become `?`. Text beyond max_bytes of the result is
// cut, and "..." says so.
std::string printable(std::string_view text, size_t max_bytes);

}  // namespace chorus
