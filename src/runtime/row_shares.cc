#include "runtime/row_shares.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace chorus {
namespace {

bool getsRow(const RequestView& r) { return r.running && r.generating && !r.skipped; }

// A position below `size` that differs from step to step. Multiples of the golden ratio keep no time with the turns of
// clients or sequences, whatever their numbers are: with turn % size some sequences got twice the rows of others.
size_t firstOf(uint64_t turn, size_t size) {
  constexpr uint32_t kGoldenRatio = 2654435769;  // (sqrt(5) - 1) / 2, times 2^32
  return (static_cast<uint64_t>(static_cast<uint32_t>(turn) * kGoldenRatio) * size) >> 32;
}

}  // namespace

// Makes a lane for each client with sequences that run or may start.
void RowShares::makeLanes(std::span<RequestView> requests) {
  sequences_.clear();
  for (RequestView& r : requests) {
    if (r.running || r.adapter_ready) sequences_.push_back({&r});
  }
  std::sort(sequences_.begin(), sequences_.end(), [](const Sequence& a, const Sequence& b) {
    const auto key = [](const Sequence& s) { return std::tuple(s.view->client, !getsRow(*s.view), s.view); };
    return key(a) < key(b);
  });
  lanes_.clear();
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (i == 0 || sequences_[i].view->client != sequences_[i - 1].view->client)
      lanes_.push_back({.begin = i, .generating_end = i, .next = i});
    lanes_.back().end = i + 1;
    if (getsRow(*sequences_[i].view)) lanes_.back().generating_end = i + 1;
  }
}

// The number of clients times the smallest number of their sequences, by weight: the smallest of the steps of several
// clients in the last kAway.
int64_t RowShares::sharedRows(Clock::time_point now) {
  double weights = 0, least = std::numeric_limits<double>::max();
  for (const Lane& lane : lanes_) {
    weights += weightOf(lane);
    least = std::min(least, static_cast<double>(lane.end - lane.begin) / weightOf(lane));
  }
  const auto rows = static_cast<int64_t>(weights * least);
  const bool known = shared_rows_at_ && now - *shared_rows_at_ <= kAway;
  if (lanes_.size() < 2) return known ? shared_rows_ : rows;
  if (!known || rows <= shared_rows_) {
    shared_rows_ = rows;
    shared_rows_at_ = now;
  }
  return shared_rows_;
}

// Gives `rows` rows to the lanes, whose sequences want more. A client's sequences that had no row for the longest come
// first; of those that had none for as long, another one in each step, because otherwise the first ones would get more
// rows than the last ones.
void RowShares::divide(int64_t rows, uint64_t turn) {
  std::erase_if(lanes_, [](const Lane& lane) { return lane.begin == lane.generating_end; });
  members_.clear();
  for (const Lane& lane : lanes_) {
    const auto generating = std::span(sequences_).subspan(lane.begin, lane.generating_end - lane.begin);
    members_.push_back({.client = generating[0].view->client,
                        .weight = weightOf(lane),
                        .demand = static_cast<double>(generating.size())});
    const size_t first = firstOf(turn, generating.size());
    for (size_t i = 0; i < generating.size(); ++i) {
      generating[i].position = (i + generating.size() - first) % generating.size();
      generating[i].view->skipped = true;
    }
    std::sort(generating.begin(), generating.end(), [](const Sequence& a, const Sequence& b) {
      const auto key = [](const Sequence& s) { return std::tuple(-s.view->steps_without_row, s.position); };
      return key(a) < key(b);
    });
  }
  credits_.divide(members_, static_cast<double>(rows));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].met = members_[i].met;
    lanes_[i].credit = members_[i].credit;
  }
  const auto less = [](const Lane& a, const Lane& b) { return std::tie(a.met, a.credit) < std::tie(b.met, b.credit); };
  std::make_heap(lanes_.begin(), lanes_.end(), less);
  for (int64_t given = 0; given < rows; ++given) {
    std::pop_heap(lanes_.begin(), lanes_.end(), less);
    Lane& lane = lanes_.back();
    RequestView& r = *sequences_[lane.next++].view;
    r.skipped = false;
    credits_.charge(r.client, 1);
    lane.credit -= 1.0 / weightOf(lane);
    if (lane.next < lane.generating_end)
      std::push_heap(lanes_.begin(), lanes_.end(), less);
    else
      lanes_.pop_back();
  }
}

int64_t RowShares::begin(std::span<RequestView> requests, int64_t rows, Clock::time_point now) {
  makeLanes(requests);
  return std::max(rows, sharedRows(now));
}

void RowShares::limit(std::span<RequestView> requests, int64_t rows, uint64_t turn) {
  if (std::count_if(requests.begin(), requests.end(), getsRow) <= rows) return;
  makeLanes(requests);
  divide(rows, turn);
}

}  // namespace chorus
