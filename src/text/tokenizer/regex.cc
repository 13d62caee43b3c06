#include "text/tokenizer/regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxPatternBytes = 16384;
// Steps of backtracking that one search may take, besides 64 for each byte of the text.
constexpr unsigned long kStepsPerSearch = 200'000;
constexpr unsigned kMatchStackEntries = 200'000;
// Repetition counts multiply in the compiled program ((a{500}){500}), so their product is bounded beforehand.
constexpr uint64_t kMaxRepetition = 2000;

std::once_flag g_initialised;

void initialise() {
  OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
  onig_initialize(encodings, 1);
  onig_set_parse_depth_limit(64);
  onig_set_subexp_call_max_nest_level(8);
}

void checkRepetition(std::string_view pattern, std::string_view source) {
  uint64_t product = 1;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '{') continue;
    uint64_t largest = 0, number = 0;
    for (size_t j = i + 1; j < pattern.size() && pattern[j] != '}'; ++j) {
      const char c = pattern[j];
      number = c >= '0' && c <= '9' ? std::min<uint64_t>(number * 10 + static_cast<uint64_t>(c - '0'), 1u << 20) : 0;
      largest = std::max(largest, number);
    }
    product *= std::max<uint64_t>(largest, 1);
    if (product > kMaxRepetition) {
      fail(ErrorCode::kUnsupported, "{}: the regular expression repeats more than {} times", source, kMaxRepetition);
    }
  }
}

// Up to 6.9.8 the library's [:punct:] lacks the symbols that later versions, and so Hugging Face's, count to it.
std::string withSymbolsInPunct(std::string_view pattern) {
  constexpr std::string_view kPunct = "[:punct:]";
  std::string out(pattern);
  for (size_t at = 0; (at = out.find(kPunct, at)) != std::string::npos;) out.replace(at, kPunct.size(), "\\p{P}\\p{S}");
  return out;
}

std::string onigMessage(int code, OnigErrorInfo* info) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length =
      info != nullptr ? onig_error_code_to_str(buffer, code, info) : onig_error_code_to_str(buffer, code);
  std::string text = toValidUtf8({reinterpret_cast<const char*>(buffer), static_cast<size_t>(std::max(length, 0))});
  std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}
}  // namespace

struct Regex::State {
  OnigRegex regex = nullptr;
  std::string source;
  ~State() {
    if (regex != nullptr) onig_free(regex);
  }
};

Regex::Regex(std::string_view pattern, std::string_view source) : state_(std::make_unique<State>()) {
  std::call_once(g_initialised, initialise);
  if (pattern.size() > kMaxPatternBytes) {
    fail(ErrorCode::kUnsupported, "{}: a regular expression of {} bytes, more than the limit of {}", source,
         pattern.size(), kMaxPatternBytes);
  }
  checkRepetition(pattern, source);
  state_->source = source;
  const std::string rewritten = withSymbolsInPunct(pattern);
  pattern = rewritten;
  const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
  OnigErrorInfo info{};
  // onig_new touches tables that it shares between patterns.
  static std::mutex compile;
  const std::lock_guard lock(compile);
  const int status = onig_new(&state_->regex, begin, begin + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                              ONIG_SYNTAX_ONIGURUMA, &info);
  if (status != ONIG_NORMAL) {
    fail(ErrorCode::kCorrupt, "{}: the regular expression doesn't compile: {}", source, onigMessage(status, &info));
  }
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::vector<TextRange> Regex::findAll(std::string_view text) const {
  struct Param {
    OnigMatchParam* value = onig_new_match_param();
    ~Param() { onig_free_match_param(value); }
  } param;
  struct Region {
    OnigRegion* value = onig_region_new();
    ~Region() { onig_region_free(value, 1); }
  } region;
  if (text.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    fail(ErrorCode::kInvalidArgument, "a text of {} bytes is too long to split", text.size());
  }
  onig_initialize_match_param(param.value);
  onig_set_match_stack_limit_size_of_match_param(param.value, kMatchStackEntries);
  const unsigned long steps = kStepsPerSearch + 64 * text.size();
  onig_set_retry_limit_in_match_of_match_param(param.value, steps);
  onig_set_retry_limit_in_search_of_match_param(param.value, steps);

  const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
  const auto* end = begin + text.size();
  std::vector<TextRange> matches;
  size_t from = 0;
  size_t last_end = std::numeric_limits<size_t>::max();
  while (from <= text.size()) {
    const int status = onig_search_with_param(state_->regex, begin, end, begin + from, end, region.value,
                                              ONIG_OPTION_NONE, param.value);
    if (status == ONIG_MISMATCH) break;
    if (status < 0) {
      fail(ErrorCode::kExhausted, "{}: the regular expression gave up on a text of {} bytes: {}", state_->source,
           text.size(), onigMessage(status, nullptr));
    }
    const auto start = static_cast<size_t>(region.value->beg[0]);
    const auto stop = static_cast<size_t>(region.value->end[0]);
    if (stop <= start && stop == last_end) {
      if (from >= text.size()) break;
      from += static_cast<size_t>(utf8Length(text[from]));
      continue;
    }
    matches.emplace_back(start, std::max(start, stop));
    from = last_end = std::max(start, stop);
  }
  return matches;
}

}  // namespace chorus
