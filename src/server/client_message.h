// Removes the server's paths from texts for clients.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chorus::server {

// Sets the paths of files and directories of the server that clientMessage() recognises whatever characters they have,
// as they are given here, absolute and with links resolved. Replaces those of an earlier call. Call it before other
// threads call clientMessage().
void setServerPaths(const std::vector<std::string>& paths);

// Returns the text with only the last component of each path: absolute and relative paths, with slashes or backslashes,
// URLs, and percent-encoded ones. A path may contain punctuation between two slashes of a word, and spaces: between two
// other pieces of punctuation, everything from the first word with a slash to the last slash counts as one path.
// Ordinary words between two relative paths may therefore be removed too.
std::string clientMessage(std::string_view text);

}  // namespace chorus::server
