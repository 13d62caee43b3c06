#include "lora/module_pattern.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/thread_time.h"

namespace chorus {
namespace {

// Work charged for comparing a name without the regex engine.
constexpr uint64_t kCompare = 16;

// Rewrites what Python and Oniguruma read differently: Python's named groups, (?P<name>...), and classes, in which
// Python takes '[', '&' and a first ']' as they are, where Oniguruma has nested classes, [:names:] and intersections.
std::string fromPython(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const std::string_view rest = pattern.substr(at);
    if (rest[0] == '\\') {
      out += rest.substr(0, 2);
      ++at;
    } else if (in_class) {
      in_class = rest[0] != ']';
      if (rest[0] == '[' || rest[0] == '&') out += '\\';
      out += rest[0];
    } else if (rest[0] == '[') {
      in_class = true;
      const std::string_view begin = rest.substr(0, rest.starts_with("[^") ? 2 : 1);
      out += begin;
      at += begin.size() - 1;
      if (rest.substr(begin.size()).starts_with(']')) {
        out += "\\]";
        ++at;
      }
    } else if (rest.starts_with("(?#")) {  // a comment, which may have brackets
      const size_t end = rest.find(')');
      if (end == std::string_view::npos) return out.append(rest);  // both refuse it
      at += end;
    } else if (rest.starts_with("(?P<")) {
      out += "(?<";
      at += 3;
    } else {
      out += rest[0];
    }
  }
  return out;
}

// The pattern as a plain name if it has only name characters and dots; an unescaped dot, which matches any character,
// becomes '\0'. nullopt for other patterns.
std::optional<std::string> asName(std::string_view pattern) {
  std::string name;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    const bool escaped_dot = pattern.substr(at, 2) == "\\.";
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')
      name += c;
    else if (c == '.')
      name += '\0';
    else if (escaped_dot)
      name += '.', ++at;
    else
      return std::nullopt;
  }
  return name;
}
}  // namespace

bool isNameOrEnd(std::string_view name, std::string_view end) {
  if (name == end) return true;
  return name.size() > end.size() && name.ends_with(end) && name[name.size() - end.size() - 1] == '.';
}

void PatternWork::failLimit() const {
  fail(ErrorCode::kInvalidArgument,
       "{}: its patterns and lists exceed the limit of {} bytes of work to match the names of the modules; use fewer "
       "or simpler ones",
       source_, kLimit);
}

Regex PatternWork::compile(std::string_view pattern, std::string_view source) {
  const uint64_t begin = threadNanoseconds();
  Regex regex(pattern, source);
  compile_nanoseconds_ += threadNanoseconds() - begin;
  if (compile_nanoseconds_ > kCompileLimit) {
    fail(ErrorCode::kInvalidArgument, "{}: its patterns take more than {} s to compile; use fewer or simpler ones",
         source_, kCompileLimit / 1'000'000'000);
  }
  memory_ += regex.memoryBytes();
  if (memory_ > kMemoryLimit) {
    fail(ErrorCode::kInvalidArgument, "{}: its patterns take more than {} bytes of memory; use fewer or simpler ones",
         source_, kMemoryLimit);
  }
  return regex;
}

bool PatternWork::matches(const Regex& regex, Utf8View text) {
  charge(WorkMeter::kObject);
  WorkMeter meter({.work = allowed_ - spent_});
  Scratch scratch(Scratch::limitFor(text.size()), meter);
  EncodeWork work{meter, scratch};
  bool found = false;
  try {
    found = regex.matches(text, work);
  } catch (const WorkStopped&) {
    failLimit();
  }
  charge(meter.spent());
  return found;
}

ModulePattern::ModulePattern(std::string_view pattern, bool may_be_end, std::string_view source,
                             std::shared_ptr<PatternWork> work)
    : may_be_end_(may_be_end), work_(std::move(work)) {
  if (auto name = asName(pattern)) {
    name_ = std::move(*name);
    return;
  }
  regex_ = work_->compile(fmt::format("\\A{}(?:{})\\z", may_be_end ? "(?:.*\\.)?" : "", fromPython(pattern)), source);
}

ModulePattern ModulePattern::ofNameEnd(std::string_view pattern, std::string_view source,
                                       std::shared_ptr<PatternWork> work) {
  return {pattern, true, source, std::move(work)};
}

ModulePattern ModulePattern::ofWholeName(std::string_view pattern, std::string_view source,
                                         std::shared_ptr<PatternWork> work) {
  return {pattern, false, source, std::move(work)};
}

// Compares backwards, because with `may_be_end_` the pattern matches the end of the name.
bool ModulePattern::matchesName(Utf8View module) const {
  size_t at = module.size();
  for (size_t i = name_.size(); i-- > 0;) {
    if (at == 0) return false;
    at = module.before(at);
    const char c = module.bytes()[at];
    if (name_[i] == '\0' ? c == '\n' : c != name_[i]) return false;
  }
  if (at == 0 || !may_be_end_) return at == 0;
  return module.bytes()[at - 1] == '.' && module.bytes().substr(0, at).find('\n') == std::string_view::npos;
}

bool ModulePattern::matches(std::string_view module) const {
  // Tensor names come from files and may be invalid UTF-8.
  const auto name = Utf8View::check(module);
  if (!name) return false;
  if (regex_) return work_->matches(*regex_, *name);
  work_->charge(kCompare + module.size() / 8);
  return matchesName(*name);
}

}  // namespace chorus
