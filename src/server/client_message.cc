#include "server/client_message.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

namespace chorus::server {
namespace {

// Longest first, without slashes at the end.
std::vector<std::string>& serverPaths() {
  static std::vector<std::string> paths;
  return paths;
}

// Whether a path cannot begin after this character.
bool continuesWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Leaves out each of serverPaths() that other components follow. Of others the last component is kept.
std::string withoutServerPaths(std::string_view text) {
  constexpr std::string_view kNoName = " :,'\"";
  std::string rest(text);
  for (const std::string& path : serverPaths()) {
    for (size_t at = 0; (at = rest.find(path, at)) != std::string::npos;) {
      const size_t end = at + path.size();
      const bool ends_sentence = rest.compare(end, 1, ".") == 0 && (end + 1 == rest.size() || rest[end + 1] == ' ');
      const bool goes_on = end < rest.size() && continuesWord(rest[end]) && !ends_sentence;
      if ((at > 0 && continuesWord(rest[at - 1])) || goes_on) {
        ++at;
        continue;
      }
      const bool slash = end < rest.size() && rest[end] == '/';
      const bool leads = slash && end + 1 < rest.size() && kNoName.find(rest[end + 1]) == std::string::npos;
      if (slash) rest.erase(end, 1);
      rest.erase(at, leads ? path.size() : path.rfind('/') + 1);  // without a slash rfind() + 1 is 0
      ++at;
    }
  }
  return rest;
}

bool isSlash(std::string_view text, size_t at) {
  if (text[at] == '/' || text[at] == '\\') return true;
  if (text[at] != '%' || at + 2 >= text.size()) return false;
  const std::string_view code = text.substr(at + 1, 2);
  return code == "2f" || code == "2F" || code == "5c" || code == "5C";
}

// The slashes of a word, which ends at a space or a quotation mark.
struct WordSlashes {
  size_t end = 0;  // of the word
  size_t first = std::string_view::npos, last = 0;

  static WordSlashes of(std::string_view text, size_t begin) {
    WordSlashes word{.end = std::min(text.find_first_of(" \n\t'\"`", begin), text.size())};
    for (size_t i = begin; i < word.end; ++i) {
      if (!isSlash(text, i)) continue;
      if (word.first == std::string_view::npos) word.first = i;
      word.last = i;
    }
    return word;
  }
  bool surround(size_t at) const { return first < at && at < last; }
};

// Whether text[at], which is part of the word or follows it, is punctuation outside a path. Names of directories may
// have brackets and commas. A colon or a full stop counts only at the end of a word.
bool endsClause(std::string_view text, size_t at, const WordSlashes& word) {
  constexpr std::string_view kAlways = "\n\t'\"`", kOutsidePaths = "()<>[]{},;=|";
  if (kAlways.find(text[at]) != std::string_view::npos) return true;
  if (kOutsidePaths.find(text[at]) != std::string_view::npos) return !word.surround(at);
  const bool last = at + 1 == text.size() || text[at + 1] == ' ' || text[at + 1] == '\n';
  return last && (text[at] == ':' || text[at] == '.');
}

// Whether a word with a slash is not a path, for example "and/or", "tokens/s" or "1/2".
bool isNoPath(std::string_view word) {
  if (word == "/" || word == "and/or" || word.ends_with("/s")) return word.find_first_of("./~\\%") == word.find('/');
  return word.size() == 3 && std::isdigit(static_cast<unsigned char>(word[0])) != 0 && word[1] == '/' &&
         std::isdigit(static_cast<unsigned char>(word[2])) != 0;
}

bool isAbsolute(std::string_view word) {
  return word.starts_with('/') || word.starts_with('\\') || word.starts_with('~') || word.starts_with("./") ||
         word.starts_with("../") || word.find(":/") != std::string_view::npos ||
         word.find(":\\") != std::string_view::npos;
}

// piece: part of a clause with at most one path, which may contain spaces. The path begins with the first word that
// has a slash; everything up to the last slash is left out.
void appendWithoutPath(std::string_view piece, std::string& out) {
  std::optional<size_t> first;
  size_t last = 0;
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = std::min(piece.find(' ', begin), piece.size());
    if (!isNoPath(piece.substr(begin, end - begin))) {
      for (size_t i = begin; i < end; ++i) {
        // A slash at the end of a word belongs to a directory's name, so it is not the path's last slash.
        if (!isSlash(piece, i)) continue;
        if (!first) first = begin;
        const size_t after = i + (piece[i] == '%' ? 3 : 1);
        if (after < end || last == 0) last = after;
      }
    }
    begin = end + 1;
  }
  if (!first) {
    out += piece;
    return;
  }
  out += piece.substr(0, *first);
  std::string_view rest = piece.substr(last);
  const size_t word_end = std::min(rest.find(' '), rest.size());
  std::string_view name = rest.substr(0, word_end);
  while (!name.empty() && (name.back() == '/' || name.back() == '\\')) name.remove_suffix(1);
  out += name;
  out += rest.substr(word_end);
}

// clause: text without a character for which endsClause() is true.
void appendClause(std::string_view clause, std::string& out) {
  size_t begin = 0;
  for (size_t space = clause.find(' '); space != std::string_view::npos; space = clause.find(' ', space + 1)) {
    const std::string_view next = clause.substr(space + 1);
    const std::string_view word = next.substr(0, next.find(' '));
    if (!isAbsolute(word) || isNoPath(word)) continue;
    appendWithoutPath(clause.substr(begin, space + 1 - begin), out);
    begin = space + 1;
  }
  appendWithoutPath(clause.substr(begin), out);
}

}  // namespace

void setServerPaths(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::set<std::string> all;
  for (const std::string& path : paths) {
    std::error_code error;
    for (std::string name :
         {path, fs::path(path).lexically_normal().string(), fs::absolute(path, error).lexically_normal().string(),
          fs::weakly_canonical(path, error).string()}) {
      while (name.ends_with('/')) name.pop_back();
      if (name.size() > 1) all.insert(std::move(name));
    }
  }
  std::vector<std::string>& known = serverPaths();
  known.assign(all.begin(), all.end());
  std::ranges::sort(known, std::ranges::greater(), &std::string::size);
}

std::string clientMessage(std::string_view whole) {
  const std::string shortened = withoutServerPaths(whole);
  const std::string_view text = shortened;
  std::string out;
  size_t begin = 0;
  WordSlashes word = WordSlashes::of(text, 0);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > word.end) word = WordSlashes::of(text, i);
    if (!endsClause(text, i, word)) continue;
    appendClause(text.substr(begin, i - begin), out);
    out += text[i];
    begin = i + 1;
  }
  appendClause(text.substr(begin), out);
  return out;
}

}  // namespace chorus::server
