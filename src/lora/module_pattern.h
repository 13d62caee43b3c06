// The regular expressions over module names in PEFT's adapter_config.json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/work_meter.h"
#include "text/tokenizer/regex.h"

namespace chorus {

// The work of all patterns and name lists of one configuration. Every question about a name brings some for each byte
// of the configuration, so that patterns times names stay in proportion; kLimit holds for all questions. Used by one
// thread at a time.
class PatternWork {
 public:
  static constexpr uint64_t kLimit = uint64_t{1} << 28;
  static constexpr uint64_t kAtFirst = uint64_t{1} << 20;
  static constexpr uint64_t kForEachByte = 64;

  // source is named by errors.
  PatternWork(std::string_view source, size_t config_bytes) : source_(source), bytes_(config_bytes) {}

  // The patterns and lists are asked about another name.
  void ask() { allowed_ = std::min(kLimit, allowed_ + kForEachByte * bytes_); }
  // Both throw Error(kInvalidArgument) that names source when the limit is exceeded.
  void charge(uint64_t bytes) {
    spent_ += bytes;
    if (spent_ > allowed_) failLimit();
  }
  bool matches(const Regex& regex, Utf8View text);

 private:
  [[noreturn]] void failLimit() const;

  std::string source_;
  size_t bytes_;
  uint64_t allowed_ = kAtFirst, spent_ = 0;
};

class ModulePattern {
 public:
  // A key of rank_pattern or alpha_pattern: the pattern takes the whole name or its end after a dot, as PEFT's
  // `(.*\.)?(pattern)$` does. Throws Error(kCorrupt) that names source when the pattern doesn't compile. work must not
  // be null.
  static ModulePattern ofNameEnd(std::string_view pattern, std::string_view source, std::shared_ptr<PatternWork> work);
  // target_modules given as one string: the pattern takes the whole name.
  static ModulePattern ofWholeName(std::string_view pattern, std::string_view source,
                                   std::shared_ptr<PatternWork> work);

  // Throws Error(kInvalidArgument) when the configuration's work exceeds its limit.
  bool matches(std::string_view module) const;

 private:
  ModulePattern(std::string_view pattern, bool may_be_end, std::string_view source, std::shared_ptr<PatternWork> work);

  bool matchesName(Utf8View module) const;

  std::string name_;  // of a pattern that is a name, which nearly all are; '\0' is any character but a newline
  std::optional<Regex> regex_;  // of others
  bool may_be_end_;
  std::shared_ptr<PatternWork> work_;
};

// Whether end is the whole name or what stands behind one of its dots.
bool isNameOrEnd(std::string_view name, std::string_view end);

}  // namespace chorus
