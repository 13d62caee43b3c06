// Matches the regular expressions over module names in PEFT's adapter_config.json.
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

// Budget of all patterns and name lists of one configuration: of work, in bytes, of time to compile, and of memory. The
// work starts at kAtFirst; each query about a name (`ask`) adds kForEachByte per byte of the configuration, up to
// kLimit in total, so that the work stays proportional to names times configuration size. Used by one thread at a time.
class PatternWork {
 public:
  static constexpr uint64_t kLimit = uint64_t{1} << 28;
  static constexpr uint64_t kAtFirst = uint64_t{1} << 20;
  static constexpr uint64_t kForEachByte = 64;
  // Bytes of all compiled patterns of a configuration together. They are limited apart from the configuration's text,
  // because a repetition such as (?:abcd){2000} takes far more memory than its text.
  static constexpr size_t kMemoryLimit = size_t{16} << 20;
  // Processor time for compiling them, in nanoseconds: each load of an adapter compiles its patterns.
  static constexpr uint64_t kCompileLimit = 1'000'000'000;

  // `source` is named in errors.
  PatternWork(std::string_view source, size_t config_bytes) : source_(source), bytes_(config_bytes) {}

  // Call before matching another name against the patterns and lists.
  void ask() { allowed_ = std::min(kLimit, allowed_ + kForEachByte * bytes_); }
  // Compiles a pattern, and counts the time for it and its memory. source: see Regex. compile(), charge() and matches()
  // throw Error(kInvalidArgument) that names the object's source when the budget is exceeded.
  Regex compile(std::string_view pattern, std::string_view source);
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
  size_t memory_ = 0;  // bytes of compiled patterns
  uint64_t compile_nanoseconds_ = 0;
};

class ModulePattern {
 public:
  // A key of rank_pattern or alpha_pattern: it matches the full name or its end after a dot, like PEFT's
  // `(.*\.)?(pattern)$`. Throws Error(kCorrupt) that names source when the pattern doesn't compile, and the Error of
  // PatternWork::compile(). work must not be null.
  static ModulePattern ofNameEnd(std::string_view pattern, std::string_view source, std::shared_ptr<PatternWork> work);
  // target_modules given as one string: the pattern must match the full name.
  static ModulePattern ofWholeName(std::string_view pattern, std::string_view source,
                                   std::shared_ptr<PatternWork> work);

  // Throws Error(kInvalidArgument) when the configuration's work budget is exceeded.
  bool matches(std::string_view module) const;

 private:
  ModulePattern(std::string_view pattern, bool may_be_end, std::string_view source, std::shared_ptr<PatternWork> work);

  bool matchesName(Utf8View module) const;

  // A plain-name pattern, which most patterns are; '\0' stands for any character but a newline. Unused when `regex_` is
  // set.
  std::string name_;
  std::optional<Regex> regex_;  // set for all other patterns
  bool may_be_end_;
  std::shared_ptr<PatternWork> work_;
};

// Whether `end` equals `name` or is the part of it after one of its dots.
bool isNameOrEnd(std::string_view name, std::string_view end);

}  // namespace chorus
