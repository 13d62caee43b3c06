#include "runtime/costly_rows.h"

#include <algorithm>
#include <limits>

namespace chorus {
namespace {

// Assumed rows of a context's next chunk. The scheduler decides the real number later; count() charges that.
constexpr int64_t kChunk = 32;

bool mayRun(const RequestView& r) { return r.running || r.adapter_ready; }
bool isScored(const RequestView& r) { return !r.generating && r.num_cached >= r.scored_from; }
// A row with a small adapter costs at most one more row.
bool isCostly(const RequestView& r) { return r.adapter_size > 1 / kRowsPerRead || isScored(r); }
int64_t expectedRows(const RequestView& r) {
  return r.generating ? 1 : std::min<int64_t>(r.num_tokens - r.num_cached, kChunk);
}

}  // namespace

double CostlyRows::beginUnlimited(std::span<const RequestView> requests) {
  adapters_.begin(requests.size());
  costs_.reserve(requests.size());
  limited_ = false;
  owed_ = shared_demand_ = least_served_ = 0;
  served_.clear();
  return readsOf(std::count_if(requests.begin(), requests.end(), [](const RequestView& r) { return r.generating; }));
}

// Adds to owed_ what the latest step spent beyond its limit, or subtracts what it left of it.
void CostlyRows::settle() noexcept {
  if (limited_) owed_ = std::clamp(owed_ + spent_ - std::max(rest_, shared_demand_), 0.0, kMostOwed);
  limited_ = false;
  spent_ = rest_ = 0;
}

// Collects the costly requests that may run, client by client. A client's running requests come first, and of these the
// one without a row for the longest.
void CostlyRows::collect(std::span<RequestView> requests, const TokenPrices& prices) {
  costly_.clear();
  adapters_.begin(requests.size());
  for (RequestView& r : requests) {
    if (!mayRun(r) || !isCostly(r)) continue;
    costly_.push_back({&r, 0});
    adapters_.add(r.adapter, expectedRows(r));
  }
  for (auto& [request, cost] : costly_) {
    const int64_t rows = expectedRows(*request);
    cost = adapters_.cost(request->adapter, request->adapter_size, rows);
    if (isScored(*request)) cost += prices.scored * static_cast<double>(rows);
  }
  std::stable_sort(costly_.begin(), costly_.end(), [&](const Costly& a, const Costly& b) {
    const RequestView &one = *a.request, &other = *b.request;
    if (one.client != other.client) return one.client < other.client;
    if (one.running != other.running) return one.running;
    return one.steps_without_row > other.steps_without_row;
  });
}

void CostlyRows::makeLanes() {
  lanes_.clear();
  for (size_t i = 0; i < costly_.size(); ++i) {
    const RequestView& r = *costly_[i].request;
    if (lanes_.empty() || lanes_.back().client != r.client)
      lanes_.push_back({.client = r.client, .next = i, .begin_waiting = i});
    Lane& lane = lanes_.back();
    lane.end = i + 1;
    if (!r.running) continue;
    lane.begin_waiting = i + 1;
    lane.demand += costly_[i].cost;
  }
  for (Lane& lane : lanes_) {
    double& served = served_[lane.client];
    served = std::max(served, least_served_);
    lane.served = served;
  }
  // Clients that left are raised to least_served_ if they come back, so nobody need remember that they were served
  // less.
  std::erase_if(served_,
                [&](const auto& entry) { return entry.second <= least_served_ && laneOf(entry.first) == nullptr; });
  constexpr size_t kMostAbsent = 1024;
  if (served_.size() <= lanes_.size() + kMostAbsent) return;
  std::erase_if(served_, [&](const auto& entry) { return laneOf(entry.first) == nullptr; });
}

const CostlyRows::Lane* CostlyRows::laneOf(const Client& client) const {
  const auto before = [](const Lane& lane, const Client& other) { return lane.client < other; };
  const auto found = std::lower_bound(lanes_.begin(), lanes_.end(), client, before);
  return found != lanes_.end() && found->client == client ? &*found : nullptr;
}

// The number of clients times the smallest demand; 0 if one of the clients has no costly requests, or was here
// recently.
double CostlyRows::sharedDemand(std::span<const RequestView> requests, Clock::time_point now) {
  const bool others = std::any_of(requests.begin(), requests.end(),
                                  [&](const RequestView& r) { return mayRun(r) && laneOf(r.client) == nullptr; });
  if (others) others_at_ = now;
  const bool expected = others_at_ != Clock::time_point::min() && now - others_at_ <= kAway;
  if (expected || lanes_.size() <= 1) return 0;
  double least = std::numeric_limits<double>::max();
  for (const Lane& lane : lanes_) least = std::min(least, lane.demand);
  return least * static_cast<double>(lanes_.size());
}

// Lets the lane's next running request have its rows.
void CostlyRows::allow(Lane& lane, double& planned, int64_t& rows) {
  const auto& [request, cost] = costly_[lane.next++];
  request->skipped = false;
  rows += request->generating ? 1 : 0;
  planned += cost;
  lane.served += cost / request->weight;
}

double CostlyRows::beginLimited(std::span<RequestView> requests, const TokenPrices& prices, uint64_t turn,
                                Clock::time_point now) {
  settle();
  collect(requests, prices);
  makeLanes();
  shared_demand_ = sharedDemand(requests, now);
  costs_.reserve(requests.size());
  limited_ = true;

  int64_t rows = 0, costly_rows = 0;  // generated ones: without costs, and with
  for (const RequestView& r : requests) {
    if (r.generating) ++(isCostly(r) ? costly_rows : rows);
  }
  double demand = 0;
  for (const Costly& costly : costly_) demand += costly.cost;
  const auto limitOf = [&](int64_t generated) {
    return std::max(readsOf(std::max<int64_t>(generated, 1)), shared_demand_);
  };
  if (owed_ + demand <= limitOf(rows + costly_rows)) {
    served_.clear();
    least_served_ = 0;
    return readsOf(rows + costly_rows);
  }

  for (const Costly& costly : costly_) costly.request->skipped = true;
  // Of the clients with waiting requests, one may start one, whose cost is not known yet.
  if (owed_ < limitOf(rows)) {
    const auto waits = [](const Lane& lane) { return lane.begin_waiting < lane.end; };
    const auto waiting = std::count_if(lanes_.begin(), lanes_.end(), waits);
    auto chosen = waiting > 0 ? static_cast<ptrdiff_t>(turn % static_cast<uint64_t>(waiting)) : -1;
    for (const Lane& lane : lanes_) {
      if (waits(lane) && chosen-- == 0) costly_[lane.begin_waiting].request->skipped = false;
    }
  }
  double planned = 0;
  const double equal_share = limitOf(rows) / static_cast<double>(lanes_.size());
  for (Lane& lane : lanes_) {
    const bool all = lane.demand <= equal_share;
    while (all && lane.next < lane.begin_waiting) allow(lane, planned, rows);
  }
  std::erase_if(lanes_, [](const Lane& lane) { return lane.next == lane.begin_waiting; });
  const auto later = [](const Lane& a, const Lane& b) { return a.served > b.served; };
  std::make_heap(lanes_.begin(), lanes_.end(), later);
  while (!lanes_.empty() && owed_ + planned < limitOf(rows)) {
    std::pop_heap(lanes_.begin(), lanes_.end(), later);
    Lane& lane = lanes_.back();
    allow(lane, planned, rows);
    if (lane.next == lane.begin_waiting)
      lanes_.pop_back();
    else
      std::push_heap(lanes_.begin(), lanes_.end(), later);
  }
  if (!lanes_.empty()) least_served_ = std::max(least_served_, lanes_.front().served);
  return readsOf(rows);
}

std::span<const CostlyRows::Cost> CostlyRows::count(std::span<const RequestView> requests, const SchedulerPlan& plan,
                                                    const TokenPrices& prices) noexcept {
  const auto at = [&](const PlannedSequence& planned) -> const RequestView& {
    return requests[static_cast<size_t>(planned.request_index)];
  };
  costs_.clear();
  adapters_.begin(plan.sequences.size());
  for (const auto& planned : plan.sequences) adapters_.add(at(planned).adapter, planned.num_tokens);
  int64_t generated = 0, prompt = 0;
  spent_ = 0;
  for (const auto& planned : plan.sequences) {
    const RequestView& r = at(planned);
    const int32_t scored = std::clamp(r.num_cached + planned.num_tokens - r.scored_from, 0, planned.num_tokens);
    const Cost cost{adapters_.cost(r.adapter, r.adapter_size, planned.num_tokens), prices.scored * scored};
    costs_.push_back(cost);
    (planned.context ? prompt : generated) += planned.num_tokens - scored;
    if (r.adapter_size <= 1 / kRowsPerRead && scored == 0) continue;
    spent_ += cost.total();
    if (const auto served = served_.find(r.client); served != served_.end()) served->second += cost.total() / r.weight;
  }
  rest_ = readsOf(std::max<int64_t>(generated, 1)) + prices.context * static_cast<double>(prompt);
  return costs_;
}

}  // namespace chorus
