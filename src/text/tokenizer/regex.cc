#include "text/tokenizer/regex.h"

#include <limits>
#include <optional>

#include "base/error.h"
#include "base/thread_time.h"
#include "text/tokenizer/oniguruma_pattern.h"
#include "text/tokenizer/regex_matcher.h"
#include "text/tokenizer/regex_program.h"
#include "text/tokenizer/regex_syntax.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxPatternBytes = 16384;
// Oniguruma does not report the memory of a compiled pattern; the largest allowed pattern takes about this much.
constexpr size_t kOnigurumaBytes = size_t{512} << 10;

// In Oniguruma up to 6.9.8, [:punct:] lacks the symbols that it has in later versions and so in Hugging Face's
// tokenizers.
std::string withSymbolsInPunct(std::string_view pattern) {
  constexpr std::string_view kPunct = "[:punct:]";
  std::string out;
  size_t from = 0;
  for (size_t at = 0; (at = pattern.find(kPunct, from)) != std::string_view::npos; from = at + kPunct.size()) {
    out.append(pattern.substr(from, at - from)).append("\\p{P}\\p{S}");
  }
  return out.append(pattern.substr(from));
}

template <typename Search>
void forEach(Search&& search, Utf8View text, FunctionRef<bool(size_t, size_t)> found) {
  size_t last_end = std::numeric_limits<size_t>::max();
  for (size_t from = 0; from <= text.size();) {
    const auto match = search.search(from);
    if (!match) break;
    if (match->second == match->first && match->second == last_end) {
      if (from >= text.size()) break;
      from += text.characterAt(from).length;
      continue;
    }
    if (!found(match->first, match->second)) break;
    from = last_end = match->second;
  }
}
}  // namespace

struct Regex::State {
  std::optional<regex::Program> program;
  std::unique_ptr<const OnigurumaPattern> fallback;  // set if there is no program
};

Regex::Regex(std::string_view pattern, std::string_view source, WorkMeter& meter) : state_(std::make_unique<State>()) {
  const uint64_t begin = threadNanoseconds();
  if (pattern.size() > kMaxPatternBytes) {
    fail(ErrorCode::kUnsupported, "{}: the regular expression has {} bytes; the limit is {}", source, pattern.size(),
         kMaxPatternBytes);
  }
  const auto rewritten = Utf8Text::check(withSymbolsInPunct(pattern));
  if (!rewritten) fail(ErrorCode::kCorrupt, "{}: the regular expression is not UTF-8", source);
  if (auto parsed = regex::parsePattern(*rewritten)) state_->program = regex::compile(std::move(*parsed));
  if (!state_->program) state_->fallback = std::make_unique<const OnigurumaPattern>(rewritten->bytes(), source);
  meter.charge(threadNanoseconds() - begin);
}
Regex::Regex(std::string_view pattern, std::string_view source) {
  WorkMeter unlimited;
  *this = Regex(pattern, source, unlimited);
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::forEachMatch(Utf8View text, EncodeWork& work, FunctionRef<bool(size_t, size_t)> found) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    fail(ErrorCode::kInvalidArgument, "a text of {} bytes is too long to split", text.size());
  }
  if (state_->program)
    forEach(regex::Matcher(*state_->program, text, work), text, found);
  else
    forEach(OnigurumaPattern::Search(*state_->fallback, text, work), text, found);
}

bool Regex::matches(Utf8View text, EncodeWork& work) const {
  bool any = false;
  const auto stop = [&](size_t, size_t) { return any = true, false; };
  forEachMatch(text, work, stop);
  return any;
}

bool Regex::isNative() const { return state_->program.has_value(); }

size_t Regex::memoryBytes() const {
  return sizeof(State) + (state_->program ? state_->program->memoryBytes() : kOnigurumaBytes);
}

}  // namespace chorus
