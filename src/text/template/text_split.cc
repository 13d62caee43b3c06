#include "text/template/text_split.h"

#include <algorithm>

#include "text/template/text_scan.h"

namespace chorus::tmpl {
namespace {

struct TextSpan {
  size_t begin, end;
};

Value listOf(Runtime& rt, ValueBuffer& parts) { return Sequence::make(rt, Sequence::Flavor::kList, parts.finish()); }

// Splits at white space; a run of white space is one separator. limit < 0: no limit.
Value splitAtSpace(Runtime& rt, std::string_view text, int64_t limit, bool from_right) {
  Buffer<TextSpan> words(rt);
  for (Characters c(rt, text); c.next();) {
    if (isPythonSpace(c.code())) continue;
    if (!words.empty() && words.items().back().end == c.begin())
      words.items().back().end = c.end();
    else
      words.push({c.begin(), c.end()});
  }
  // After `limit` splits the rest stays one part, with the white space inside it and at its far end.
  const std::span<const TextSpan> all = words.items();
  const size_t keep = limit < 0 ? all.size() : std::min(all.size(), static_cast<size_t>(limit));
  const size_t rest = all.size() - keep;
  ValueBuffer parts(rt);
  if (from_right && rest > 0) parts.push(Value::ofText(text.substr(0, all[rest - 1].end)));
  for (const TextSpan& word : all.subspan(from_right ? rest : 0, keep)) {
    parts.push(Value::ofText(text.substr(word.begin, word.end - word.begin)));
  }
  if (!from_right && rest > 0) parts.push(Value::ofText(text.substr(all[keep].begin)));
  return listOf(rt, parts);
}

Value splitAt(Runtime& rt, std::string_view text, std::string_view separator, int64_t limit, bool from_right) {
  if (separator.empty()) raise("empty separator");
  TextFinder finder(rt, separator);
  ValueBuffer parts(rt);
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = from_right ? finder.findLast(text) : finder.find(text);
    if (at == kNotFound) break;
    const std::string_view before = text.substr(0, at), after = text.substr(at + separator.size());
    parts.push(Value::ofText(from_right ? after : before));
    text = from_right ? before : after;
  }
  parts.push(Value::ofText(text));
  if (from_right) std::reverse(parts.items().begin(), parts.items().end());
  return listOf(rt, parts);
}
}  // namespace

Value splitText(Runtime& rt, std::string_view text, CallArgs& args, bool from_right) {
  const BoundArgs a(args, "split", {"sep", "maxsplit"});
  const int64_t limit = a.integerOr(1, -1);
  return a.given(0) ? splitAt(rt, text, a.textOr(0, ""), limit, from_right) : splitAtSpace(rt, text, limit, from_right);
}

Value splitLines(Runtime& rt, std::string_view text, CallArgs& args) {
  const BoundArgs a(args, "splitlines", {"keepends"});
  const bool keep_ends = a.truthOr(0, false);
  ValueBuffer parts(rt);
  std::string_view line;
  for (Lines lines(rt, text, false); lines.next(line, keep_ends);) parts.push(Value::ofText(line));
  return listOf(rt, parts);
}

}  // namespace chorus::tmpl
