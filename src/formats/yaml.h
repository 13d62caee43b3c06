// YAML parsing with limits. The result is a Json value, so that configs of both kinds are read in the same way.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;
inline constexpr int kMaxYamlDepth = 32;

// Parses one document. Plain scalars become null, booleans, integers and floats by YAML 1.1's spellings (also yes, no,
// on and off) and floats like 1e-5, all others strings; keys become strings. Throws Error with line and column:
//   kCorrupt      malformed text or text that is not UTF-8, a duplicate key, more than kMaxYamlBytes bytes, nesting
//   beyond kMaxYamlDepth, a second
//                 document
//   kUnsupported  an alias (*name), which could multiply what it refers to; a tag of another type, such as
//                 !!python/object; a key that is no scalar
Json parseYaml(std::string_view text, std::string_view source);

// Lines, from 1, of the keys of a document's outermost map.
using YamlKeyLines = std::map<std::string, int, std::less<>>;
// Overload that also replaces `lines` by the lines of the document's keys.
Json parseYaml(std::string_view text, std::string_view source, YamlKeyLines& lines);

}  // namespace chorus
