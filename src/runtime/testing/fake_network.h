// A network for tests of the executor. It stores tokens in the KV blocks, and the logits of a row are a hash of all
// tokens up to it, read back through the block table. A wrong table, position, chunk or adapter gives other tokens than
// expectedTokens(). Reading what another adapter wrote makes the step throw. In a model with several KV groups, all of
// them store the tokens, and a row must read the same from each, as far as the group's window reaches.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/prepared_adapter.h"
#include "runtime/kv_cache/kv_demand.h"
#include "runtime/step_runner.h"

namespace chorus::testing {

inline uint64_t hashStep(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x100000001b3u;
  return hash ^ (hash >> 29);
}

inline uint64_t hashAdapter(const PreparedAdapter* adapter) {
  uint64_t hash = 7;
  if (adapter != nullptr) {
    for (const char c : adapter->content_hash) hash = hashStep(hash, static_cast<uint64_t>(c));
  }
  return hash;
}

// In the fake network, an adapter's id is the hash of its content.
inline PreparedAdapter fakeAdapter(const std::string& content) {
  PreparedAdapter adapter{.content_hash = content};
  adapter.id = AdapterId{hashAdapter(&adapter)};
  return adapter;
}

// The logit of each token after a history is a small hash value.
inline void fakeLogits(std::span<const int32_t> history, uint64_t adapter, std::span<float> logits) {
  uint64_t hash = 0xcbf29ce484222325u ^ adapter;
  for (const int32_t token : history) hash = hashStep(hash, static_cast<uint64_t>(token));
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(hashStep(hash, i) % 1000) / 100.0f;
  }
}

// The tokens that greedy generation gives. window: the last tokens on which the next one depends; 0: all.
inline std::vector<int32_t> expectedTokens(std::vector<int32_t> history, int count, int32_t vocab,
                                           const std::string& adapter = "", int32_t window = 0) {
  const PreparedAdapter parts{.content_hash = adapter};
  const uint64_t hash = hashAdapter(adapter.empty() ? nullptr : &parts);
  std::vector<float> logits(static_cast<size_t>(vocab));
  std::vector<int32_t> generated;
  for (int i = 0; i < count; ++i) {
    const auto known = static_cast<int32_t>(history.size());
    const int32_t first = window == 0 ? 0 : std::max(0, known - window);
    fakeLogits(std::span(history).subspan(static_cast<size_t>(first)), hash, logits);
    const auto token = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    generated.push_back(token);
    history.push_back(token);
  }
  return generated;
}

class FakeNetwork : public StepRunner {
 public:
  FakeNetwork(int32_t vocab, int32_t blocks, const KvDemand& kv)
      : vocab_(vocab), kv_(kv), cache_(static_cast<size_t>(blocks) * static_cast<size_t>(kv.tokens_per_block)) {}

  // Called before every step with its number, counted from 0; may throw or wait.
  std::function<void(int step, const StepInput&)> before_step;
  // May change a finished row of logits.
  std::function<void(const std::vector<int32_t>& history, std::span<float>)> after_row;

  std::span<const float> run(const StepInput& input) override {
    const int step = steps_++;
    if (before_step) before_step(step, input);
    // Columns beyond a row's own vocabulary are huge, so that code that reads them would choose them.
    const auto width = static_cast<size_t>(logitsWidth(input, vocab_));
    logits_.assign(input.logits_rows.size() * width, 1e30f);
    size_t out = 0;
    int32_t next_row = 0;
    for (const auto& sequence : input.sequences) {
      if (sequence.row_begin != next_row) throw std::logic_error("rows are not packed");
      next_row += sequence.num_rows;
      for (int32_t i = 0; i < sequence.num_rows; ++i) {
        const int32_t row = sequence.row_begin + i;
        const int32_t position = sequence.first_position + i;
        const AdapterRows* used = adapterOf(input, row);
        const uint64_t adapter = used != nullptr ? static_cast<uint64_t>(used->adapter) : hashAdapter(nullptr);
        for (int32_t group = 0; group < kv_.numGroups(); ++group) {
          at(sequence, group, position) = {input.tokens.at(static_cast<size_t>(row)), adapter};
        }
        if (out == input.logits_rows.size() || input.logits_rows[out] != row) continue;
        const std::vector<int32_t> history = historyOf(sequence, position, adapter);
        const int64_t vocab = std::max<int64_t>(vocab_, used != nullptr ? used->vocab_size : 0);
        const std::span<float> logits(logits_.data() + out * width, static_cast<size_t>(vocab));
        fakeLogits(history, adapter, logits);
        if (after_row) after_row(history, logits);
        ++out;
      }
    }
    if (out != input.logits_rows.size()) throw std::logic_error("logits rows are not ascending rows of the step");
    return logits_;
  }

  std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms) override {
    ++compositions;
    return std::make_shared<PreparedAdapter>(fakeAdapter(composedHash(terms)));
  }
  std::atomic<int> compositions{0};

 private:
  struct Entry {
    int32_t token = -1;
    uint64_t adapter = 0;
  };
  Entry& at(const SequenceSpan& sequence, int32_t group, int32_t position) {
    const int32_t width = kv_.tokens_per_block;
    const int32_t block = sequence.block_tables[group][static_cast<size_t>(position / width)];
    return cache_.at(static_cast<size_t>(block) * static_cast<size_t>(width) + static_cast<size_t>(position % width));
  }
  // The tokens up to `position` that the widest window holds.
  std::vector<int32_t> historyOf(const SequenceSpan& sequence, int32_t position, uint64_t adapter) {
    std::vector<int32_t> history;
    for (int32_t group = 0; group < kv_.numGroups(); ++group) {
      const int32_t window = kv_.windows[static_cast<size_t>(group)];
      std::vector<int32_t> read;
      for (int32_t p = window == 0 ? 0 : std::max(0, position - window + 1); p <= position; ++p) {
        const Entry& entry = at(sequence, group, p);
        if (entry.adapter != adapter) throw std::logic_error("a row reads keys and values that another adapter wrote");
        read.push_back(entry.token);
      }
      const auto common = static_cast<ptrdiff_t>(std::min(read.size(), history.size()));
      if (!std::equal(read.end() - common, read.end(), history.end() - common))
        throw std::logic_error("two KV groups hold different tokens");
      if (read.size() > history.size()) history = std::move(read);
    }
    return history;
  }
  static const AdapterRows* adapterOf(const StepInput& input, int32_t row) {
    const AdapterRows* found = nullptr;
    for (const auto& group : input.adapters) {
      for (const auto& range : group.ranges) {
        if (row < range.begin || row >= range.end) continue;
        if (found != nullptr) throw std::logic_error("a row in two groups");
        found = &group;
      }
    }
    return found;
  }

  int32_t vocab_;
  KvDemand kv_;
  int steps_ = 0;
  std::vector<Entry> cache_;
  std::vector<float> logits_;
};

// Blocks threads in pass() while it is closed. It may end as soon as it is open, while a thread still leaves pass().
class Gate {
 public:
  void close() {
    const std::lock_guard lock(state_->mutex);
    state_->open = false;
  }
  void open() {
    const std::lock_guard lock(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }
  void pass() {
    const std::shared_ptr<State> state = state_;
    std::unique_lock lock(state->mutex);
    ++state->arrived;
    state->changed.notify_all();
    state->changed.wait(lock, [&] { return state->open; });
  }
  // Waits until pass() was called at least n times.
  void awaitArrivals(int n) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->arrived >= n; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = true;
    int arrived = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace chorus::testing
