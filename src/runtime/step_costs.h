// Estimates of what the rows of a step cost. The unit is a read: the time of a step with one row of the base model, in
// which the base's weights are read once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chorus {

// Further rows use the weights that the first one reads. Until runtime/step_times.h has measured it, this many of them
// are assumed to take as long as the read. Measured: 12 to 30 for large models with AVX-512, depending on the weights'
// format, and 3 for one that fits into the processor's cache with AVX2.
constexpr double kRowsPerRead = 16;

// Reads that `rows` rows of the base model take. price: of each row beside the first, as StepPrices::row.
inline double readsOf(int64_t rows, double price = 1 / kRowsPerRead) {
  return rows <= 0 ? 0 : 1 + static_cast<double>(rows - 1) * price;
}

// Whether the rows of an adapter are costly. size: as RequestView::adapter_size.
inline bool isCostlyAdapter(double size) { return size > 1 / kRowsPerRead; }
// Prices in reads.
struct StepPrices {
  // A generated row beside the first one, without its attention.
  double row = 1 / kRowsPerRead;
  // A token of a prompt, without its attention.
  double context = 1 / kRowsPerRead;
  double scored = 1 / kRowsPerRead;  // with log probabilities
  // Attention, for each unit of attentionSize(). The price would be 1 if keys and values were read as fast as weights.
  double attention = 1;          // of generated rows
  double context_attention = 1;  // of contexts
};

// Bytes of keys and values that the attention of a row reads, divided by the bytes of the base model's weights.
class KvSizes {
 public:
  KvSizes() = default;  // all sizes are 0
  // windows: as KvDemand::windows. token: the size of one position in one KV group.
  KvSizes(std::vector<int32_t> windows, double token) : windows_(std::move(windows)), token_(token) {}

  // Size for a row that is the last one of so many positions.
  double of(int32_t positions) const noexcept {
    int64_t visible = 0;
    for (const int32_t window : windows_) visible += window == 0 ? positions : std::min(positions, window);
    return token_ * static_cast<double>(visible);
  }
  // Size for `rows` rows of a sequence behind `cached` positions. They share what they read as the rows of a step share
  // the weights. Each row counts like the one in the middle.
  double attentionSize(int32_t cached, int32_t rows) const noexcept {
    return of(cached + (rows + 1) / 2) * readsOf(rows);
  }

 private:
  std::vector<int32_t> windows_;
  double token_ = 0;
};

// Whether the attention of the last of so many tokens takes longer than all else that a row of the base model takes.
// generating: it is that of a generated row, not of a context.
inline bool isCostlyAttention(const StepPrices& prices, const KvSizes& kv, int32_t num_tokens, bool generating) {
  const double price = generating ? prices.attention : std::max(prices.attention, prices.context_attention);
  return price * kv.of(num_tokens) > 1 / kRowsPerRead;
}

// Costs of the adapters of a step beside the base model. An adapter or composition is read once for all its rows, and
// each row has an equal share of its cost.
class AdapterCosts {
 public:
  // Begins a step. Call add() for all its rows before cost().
  void begin(size_t requests) {
    adapters_.clear();
    adapters_.reserve(requests);
  }
  // Adds rows of a request. At most as many requests as begin() was told.
  void add(uint64_t adapter, int64_t rows) noexcept {
    if (Adapter* known = find(adapter))
      known->rows += rows;
    else
      adapters_.push_back({adapter, rows});
  }
  // Reads that `rows` of the rows take. size: of the adapter, divided by that of the base model.
  double cost(uint64_t adapter, double size, int64_t rows) noexcept {
    const Adapter* known = find(adapter);
    if (known == nullptr || known->rows == 0) return 0;
    return size * readsOf(known->rows) * static_cast<double>(rows) / static_cast<double>(known->rows);
  }

 private:
  struct Adapter {
    uint64_t number = 0;
    int64_t rows = 0;
  };
  // add() usually finds it at the end, because the rows of an adapter follow each other in a plan.
  Adapter* find(uint64_t number) noexcept {
    const auto found =
        std::find_if(adapters_.rbegin(), adapters_.rend(), [&](const auto& a) { return a.number == number; });
    return found != adapters_.rend() ? &*found : nullptr;
  }

  std::vector<Adapter> adapters_;
};

}  // namespace chorus
