#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/log.h"

namespace chorus {
namespace {

using Seconds = std::chrono::duration<double>;

// On a terminal, a job that ends sooner than kQuick shows nothing.
constexpr std::chrono::nanoseconds kQuick = std::chrono::milliseconds(700);
constexpr std::chrono::nanoseconds kRedraw = std::chrono::milliseconds(100);
constexpr std::chrono::nanoseconds kPlainLine = std::chrono::seconds(5);

std::string durationText(double seconds) {
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

std::string bar(double share) {
  constexpr int kWidth = 24;
  const int full = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  return '[' + std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(kWidth - full), '.') + ']';
}
}  // namespace

ProgressOutput ProgressOutput::standardError() {
  ProgressOutput output;
  output.write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
  output.terminal = ::isatty(STDERR_FILENO) == 1;
  output.enabled = log::default_logger_raw()->should_log(log::level::info);
  return output;
}

Progress::Progress(std::string what, uint64_t total, Unit unit, ProgressOutput output)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      output_(std::move(output)),
      begin_(output_.now()),
      next_draw_((output_.terminal ? kQuick : kPlainLine).count()) {}

Progress::~Progress() {
  if (drawn_width_ == 0) return;
  draw(output_.now());
  output_.write("\n");
}

void Progress::add(uint64_t amount) {
  done_.fetch_add(amount, std::memory_order_relaxed);
  if (!output_.enabled) return;
  const auto now = output_.now();
  const int64_t since = std::chrono::nanoseconds(now - begin_).count();
  int64_t due = next_draw_.load(std::memory_order_relaxed);
  if (since < due) return;
  const int64_t next = since + (output_.terminal ? kRedraw : kPlainLine).count();
  // If several threads get here at the same time, only one of them draws.
  if (next_draw_.compare_exchange_strong(due, next, std::memory_order_relaxed)) draw(now);
}

void Progress::draw(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const std::string text = line(done(), Seconds(now - begin_));
  if (!output_.terminal) {
    output_.write(text + "\n");
    return;
  }
  // Spaces overwrite the rest of a longer previous line.
  const size_t blanks = drawn_width_ > text.size() ? drawn_width_ - text.size() : 0;
  output_.write("\r" + text + std::string(blanks, ' '));
  drawn_width_ = text.size();
}

std::string Progress::amount(double value) const {
  if (unit_ == Unit::kItems) return fmt::format("{:.0f}", value);
  if (value < 1e9) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string Progress::line(uint64_t done, Seconds elapsed) const {
  const auto value = static_cast<double>(done);
  const double rate = elapsed.count() > 0 ? value / elapsed.count() : 0;
  std::string text = what_;
  if (total_ > 0) {
    const double share = std::min(1.0, value / static_cast<double>(total_));
    text +=
        output_.terminal ? fmt::format(" {} {:3.0f}%", bar(share), 100 * share) : fmt::format(" {:.0f}%", 100 * share);
    text += fmt::format("  {} of {}", amount(value), amount(static_cast<double>(total_)));
  } else {
    text += "  " + amount(value);
  }
  text += unit_ == Unit::kBytes ? "  " + amount(rate) + "/s" : fmt::format("  {:.1f}/s", rate);
  if (rate > 0 && total_ > done) text += "  " + durationText(static_cast<double>(total_ - done) / rate) + " left";
  return text;
}

}  // namespace chorus
