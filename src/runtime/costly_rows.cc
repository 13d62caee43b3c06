#include "runtime/costly_rows.h"

#include <algorithm>
#include <limits>

namespace chorus {
namespace {

// Rows that the next chunk of a context is expected to have. What it has is known when the step is planned.
constexpr int64_t kChunk = 32;

bool mayRun(const RequestView& r) { return r.running || r.adapter_ready; }
bool isScored(const RequestView& r) { return !r.generating && r.num_cached >= r.scored_from; }
bool isCostly(const RequestView& r) { return r.adapter_size > 0 || isScored(r); }
int64_t expectedRows(const RequestView& r) {
  return r.generating ? 1 : std::min<int64_t>(r.num_tokens - r.num_cached, kChunk);
}

}  // namespace

void CostlyRows::reserve(size_t requests) {
  adapters_.begin(requests);
  costs_.reserve(requests);
}

double CostlyRows::skipLimits(std::span<const RequestView> requests) {
  reserve(requests.size());
  owed_ = spent_ = least_served_ = 0;
  rows_ = 0;
  served_.clear();
  return readsOf(std::count_if(requests.begin(), requests.end(), [](const RequestView& r) { return r.generating; }));
}

// The limit of the latest step pays for what it took and for what is owed.
void CostlyRows::settle() noexcept {
  if (rows_ == 0 && spent_ == 0) return;
  owed_ = std::max(owed_ + spent_ - std::max(readsOf(std::max<int64_t>(rows_, 1)), least_limit_), 0.0);
  spent_ = 0;
  rows_ = 0;
}

// The costly requests, those of a client together. Of these, the ones that waited longest for a row come first.
void CostlyRows::collect(std::span<RequestView> requests, double scored_token, uint64_t turn) {
  costly_.clear();
  adapters_.begin(requests.size());
  for (RequestView& r : requests) {
    r.skipped = false;
    if (!mayRun(r) || !isCostly(r)) continue;
    costly_.push_back({&r, 0});
    adapters_.add(r.adapter, expectedRows(r));
  }
  for (auto& [request, cost] : costly_) {
    const int64_t rows = expectedRows(*request);
    cost = adapters_.cost(request->adapter, request->adapter_size, rows);
    if (isScored(*request)) cost += scored_token * static_cast<double>(rows);
  }
  const bool running_first = turn % 2 == 0;
  std::stable_sort(costly_.begin(), costly_.end(), [&](const Costly& a, const Costly& b) {
    const RequestView &one = *a.request, &other = *b.request;
    if (one.client != other.client) return one.client < other.client;
    if (one.running != other.running) return one.running == running_first;
    return one.steps_without_row > other.steps_without_row;
  });
}

void CostlyRows::makeLanes() {
  lanes_.clear();
  for (size_t i = 0; i < costly_.size(); ++i) {
    const Client client = costly_[i].request->client;
    if (lanes_.empty() || lanes_.back().client != client) lanes_.push_back({client, i, i, 0, 0});
    lanes_.back().end = i + 1;
    lanes_.back().demand += costly_[i].cost;
  }
  for (Lane& lane : lanes_) {
    double& served = served_[lane.client];
    served = std::max(served, least_served_);
    lane.served = served;
  }
}

// The lanes are sorted by client until limit() makes a heap of them.
const CostlyRows::Lane* CostlyRows::laneOf(const Client& client) const {
  const auto before = [](const Lane& lane, const Client& other) { return lane.client < other; };
  const auto found = std::lower_bound(lanes_.begin(), lanes_.end(), client, before);
  return found != lanes_.end() && found->client == client ? &*found : nullptr;
}

// What all clients would take if each took as much as the one that asks for the least.
double CostlyRows::sharedDemand(std::span<const RequestView> requests) const {
  // The other client is away, and expected back.
  if (lanes_.size() <= 1) return 0;
  for (const RequestView& r : requests) {
    if (mayRun(r) && laneOf(r.client) == nullptr) return 0;
  }
  double least = std::numeric_limits<double>::max();
  for (const Lane& lane : lanes_) least = std::min(least, lane.demand);
  return least * static_cast<double>(lanes_.size());
}

double CostlyRows::limit(std::span<RequestView> requests, double scored_token, uint64_t turn, bool at_least_one) {
  reserve(requests.size());
  settle();
  collect(requests, scored_token, turn);
  makeLanes();
  least_limit_ = sharedDemand(requests);
  forgetAbsent();
  int64_t rows = 0, costly_rows = 0;  // generated ones: without costs, and with
  bool others = false;                // whether requests without costs may run
  for (const RequestView& r : requests) {
    if (isCostly(r)) {
      costly_rows += r.generating ? 1 : 0;
    } else {
      rows += r.generating ? 1 : 0;
      others |= mayRun(r);
    }
  }
  double demand = 0;
  for (const Lane& lane : lanes_) demand += lane.demand;
  if (owed_ + demand <= std::max(readsOf(rows + costly_rows), least_limit_)) return readsOf(rows + costly_rows);

  for (const auto& costly : costly_) costly.request->skipped = costly.cost > 0;
  const auto later = [](const Lane& a, const Lane& b) { return a.served > b.served; };
  std::make_heap(lanes_.begin(), lanes_.end(), later);
  double planned = 0;
  bool first = at_least_one || !others;
  while (!lanes_.empty()) {
    if (!first && owed_ + planned >= std::max(readsOf(std::max<int64_t>(rows, 1)), least_limit_)) break;
    first = false;
    std::pop_heap(lanes_.begin(), lanes_.end(), later);
    Lane& lane = lanes_.back();
    const auto& [request, cost] = costly_[lane.next++];
    request->skipped = false;
    rows += request->generating ? 1 : 0;
    planned += cost;
    lane.served += cost / request->weight;
    if (lane.next == lane.end)
      lanes_.pop_back();
    else
      std::push_heap(lanes_.begin(), lanes_.end(), later);
  }
  return readsOf(rows);
}

// Forgets clients without costly requests that were served no more than the others: they would begin as one of them. If
// too many were served more, all of them are forgotten.
void CostlyRows::forgetAbsent() {
  if (!lanes_.empty()) {
    const auto less = [](const Lane& a, const Lane& b) { return a.served < b.served; };
    least_served_ = std::min_element(lanes_.begin(), lanes_.end(), less)->served;
  }
  const bool too_many = served_.size() > lanes_.size() + kMostAbsent;
  std::erase_if(served_, [&](const auto& entry) {
    return laneOf(entry.first) == nullptr && (too_many || entry.second <= least_served_);
  });
}

std::span<const CostlyRows::Cost> CostlyRows::count(std::span<const RequestView> requests, const SchedulerPlan& plan,
                                                    double scored_token) noexcept {
  const auto at = [&](const PlannedSequence& planned) -> const RequestView& {
    return requests[static_cast<size_t>(planned.request_index)];
  };
  costs_.clear();
  adapters_.begin(plan.sequences.size());
  for (const auto& planned : plan.sequences) adapters_.add(at(planned).adapter, planned.num_tokens);
  spent_ = 0;
  rows_ = 0;
  for (const auto& planned : plan.sequences) {
    const RequestView& r = at(planned);
    const int32_t scored = std::clamp(r.num_cached + planned.num_tokens - r.scored_from, 0, planned.num_tokens);
    const Cost cost{adapters_.cost(r.adapter, r.adapter_size, planned.num_tokens), scored_token * scored};
    costs_.push_back(cost);
    spent_ += cost.total();
    rows_ += planned.num_tokens - scored;  // the cost of a scored token includes its row of the base
    if (const auto served = served_.find(r.client); served != served_.end()) served->second += cost.total() / r.weight;
  }
  return costs_;
}

}  // namespace chorus
