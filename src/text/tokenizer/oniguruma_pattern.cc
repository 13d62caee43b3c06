#include "text/tokenizer/oniguruma_pattern.h"

#include <oniguruma.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/thread_time.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// Low, because a character class of a few bytes compiles to some kilobytes.
constexpr size_t kMaxOnigurumaPatternBytes = 512;
constexpr unsigned kMatchStackEntries = 50'000;
// Work between two charges to the meter: steps that Oniguruma counts, times the bytes that one step can read.
constexpr size_t kWorkPerCall = size_t{1} << 22;
constexpr size_t kLeastSteps = 2000;
// Repetition counts multiply in the compiled program ((a{500}){500}), so their product is bounded beforehand.
constexpr uint64_t kMaxRepetition = 2000;

// Oniguruma follows every subroutine call of a pattern anew for each call that leads to it, so that chains of them take
// time that grows exponentially: three calls in each of 26 groups, hours.
constexpr int kMaxCalls = 8;

std::once_flag g_initialised;

void initialise() {
  OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
  onig_initialize(encodings, 1);
  onig_set_parse_depth_limit(24);
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

void checkCalls(std::string_view pattern, std::string_view source) {
  int calls = 0;
  for (size_t at = 0; (at = pattern.find("\\g", at)) != std::string_view::npos; at += 2) ++calls;
  if (calls > kMaxCalls) {
    fail(ErrorCode::kUnsupported, "{}: the regular expression has {} subroutine calls; the limit is {}", source, calls,
         kMaxCalls);
  }
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

struct OnigurumaPattern::Compiled {
  OnigRegex regex = nullptr;
  ~Compiled() {
    if (regex != nullptr) onig_free(regex);
  }
};

OnigurumaPattern::OnigurumaPattern(std::string_view pattern, std::string_view source)
    : compiled_(std::make_unique<Compiled>()), source_(source) {
  std::call_once(g_initialised, initialise);
  if (pattern.size() > kMaxOnigurumaPatternBytes) {
    fail(ErrorCode::kUnsupported, "{}: a regular expression with rare syntax has {} bytes; the limit is {}", source,
         pattern.size(), kMaxOnigurumaPatternBytes);
  }
  checkRepetition(pattern, source);
  checkCalls(pattern, source);
  from_start_ = pattern.find("\\G") != std::string_view::npos;
  const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
  OnigErrorInfo info{};
  // onig_new accesses tables that all patterns share.
  static std::mutex compile;
  const std::lock_guard lock(compile);
  const int status = onig_new(&compiled_->regex, begin, begin + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                              ONIG_SYNTAX_ONIGURUMA, &info);
  if (status != ONIG_NORMAL) {
    const bool too_deep = status == ONIGERR_PARSE_DEPTH_LIMIT_OVER;
    fail(too_deep ? ErrorCode::kUnsupported : ErrorCode::kCorrupt, "{}: the regular expression doesn't compile: {}",
         source, onigMessage(status, &info));
  }
}
OnigurumaPattern::~OnigurumaPattern() = default;

struct OnigurumaPattern::Search::State {
  OnigMatchParam* param = onig_new_match_param();
  OnigRegion* region = onig_region_new();
  ~State() {
    onig_free_match_param(param);
    onig_region_free(region, 1);
  }
};

OnigurumaPattern::Search::Search(const OnigurumaPattern& pattern, Utf8View text, EncodeWork& work)
    : pattern_(pattern), text_(text), work_(work), state_(std::make_unique<State>()) {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorCode::kInvalidArgument, "{}: the regular expression has rare syntax, which limits the text to {} bytes",
         pattern.source_, kMaxTextBytes);
  }
  if (state_->param == nullptr || state_->region == nullptr) throw std::bad_alloc();
  const uint64_t allowed =
      std::min<uint64_t>(kWorkPerCall / (text.size() + 1), work.meter.left() / WorkMeter::kRegexStep);
  const auto steps = static_cast<unsigned long>(std::max<uint64_t>(kLeastSteps, allowed));
  onig_initialize_match_param(state_->param);
  onig_set_match_stack_limit_size_of_match_param(state_->param, kMatchStackEntries);
  onig_set_retry_limit_in_match_of_match_param(state_->param, steps);
  onig_set_retry_limit_in_search_of_match_param(state_->param, steps);
}
OnigurumaPattern::Search::~Search() = default;

template <typename Call>
int OnigurumaPattern::Search::charged(Call&& call) {
  const uint64_t start = threadNanoseconds();
  const int status = call();
  work_.meter.charge(std::max<uint64_t>(threadNanoseconds() - start, WorkMeter::kRegexStep));
  return status;
}

int OnigurumaPattern::Search::searchFrom(size_t from) {
  const auto* begin = reinterpret_cast<const OnigUChar*>(text_.bytes().data());
  const auto* end = begin + text_.size();
  // The range of the search must end with the text: Oniguruma does not find a match whose required characters lie
  // beyond the range, even if the match begins within it.
  return charged([&] {
    return onig_search_with_param(pattern_.compiled_->regex, begin, end, begin + from, end, state_->region,
                                  ONIG_OPTION_NONE, state_->param);
  });
}

int OnigurumaPattern::Search::matchAt(size_t at) {
  const auto* begin = reinterpret_cast<const OnigUChar*>(text_.bytes().data());
  return charged([&] {
    return onig_match_with_param(pattern_.compiled_->regex, begin, begin + text_.size(), begin + at, state_->region,
                                 ONIG_OPTION_NONE, state_->param);
  });
}

std::optional<std::pair<size_t, size_t>> OnigurumaPattern::Search::search(size_t from) {
  const size_t size = text_.size();
  int status = searchFrom(from);
  const bool tired = status == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER || status == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER;
  // Tries each start position alone, with the full number of steps. Not for a pattern with \G, which would match at
  // every position.
  if (tired && !pattern_.from_start_) {
    status = ONIG_MISMATCH;
    for (size_t at = from; at <= size && status == ONIG_MISMATCH;) {
      status = matchAt(at);
      at += at < size ? text_.characterAt(at).length : 1;
    }
  }
  if (status == ONIG_MISMATCH) return std::nullopt;
  if (status < 0) {
    fail(ErrorCode::kInvalidArgument, "{}: matching the regular expression failed on a text of {} bytes: {}",
         pattern_.source_, size, onigMessage(status, nullptr));
  }
  const auto start = static_cast<size_t>(state_->region->beg[0]);
  return std::pair(start, std::max(start, static_cast<size_t>(state_->region->end[0])));
}

}  // namespace chorus
