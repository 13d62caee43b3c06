#include "runtime/costly_rows.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace chorus {
namespace {

// Beyond this, no more is owed to later steps.
double mostOwed(double limit) { return std::max(64.0, 16 * limit); }

bool mayRun(const RequestView& r) { return r.running || r.adapter_ready; }

// Shorter chunks of contexts would take more time for each token, because a chunk of fewer rows reads as much.
constexpr int32_t kLeastChunk = static_cast<int32_t>(kRowsPerRead);

// How many of the request's next `rows` tokens have log probabilities.
int32_t scoredOf(const RequestView& r, int32_t rows) {
  return std::clamp(r.num_cached + rows - r.scored_from, 0, rows);
}

}  // namespace

void CostlyRows::beginUnlimited(size_t num_requests) {
  adapters_.begin(num_requests);
  costs_.reserve(num_requests);
  limited_ = false;
  owed_ = shared_demand_ = 0;
  credits_.forgetAll();
}

// Adds to owed_ what the latest step spent beyond its limit, or subtracts what it left of it.
void CostlyRows::settle() noexcept {
  const double limit = std::max(rest_, shared_demand_);
  if (limited_) owed_ = std::clamp(owed_ + spent_ - limit, 0.0, mostOwed(limit));
  limited_ = false;
  spent_ = 0;
}

// Limit on the costly rows of a step with so many generated rows.
double CostlyRows::limitOf(int64_t generated) const {
  return std::max(readsOf(std::max<int64_t>(generated, 1), row_price_), shared_demand_);
}

// Collects the costly requests that may run, client by client: generating ones by adapter, then contexts, then those
// that wait, in their order.
void CostlyRows::collect(std::span<RequestView> requests, const StepPrices& prices) {
  costly_.clear();
  for (RequestView& r : requests) {
    r.costly = mayRun(r) && isCostly(r, prices);
    if (r.costly) costly_.push_back(&r);
  }
  std::sort(costly_.begin(), costly_.end(), [](const RequestView* a, const RequestView* b) {
    const auto key = [](const RequestView* r) {
      return std::tuple(r->client, !r->running, !r->generating, r->generating ? r->adapter : 0, r);
    };
    return key(a) < key(b);
  });
}

// Tokens of the next chunk of a context whose attention stays within the limit. `chunk`: tokens that other contexts are
// expected to get.
int32_t CostlyRows::longestChunk(const RequestView& r, const StepPrices& prices, int32_t chunk, double limit) const {
  const int32_t rows = std::min(r.num_tokens - r.num_cached, chunk);
  const double of_row = prices.context_attention * kv_.of(r.num_cached + rows);
  if (of_row * readsOf(rows) <= limit) return std::numeric_limits<int32_t>::max();
  const double most = 1 + (limit / of_row - 1) * kRowsPerRead;
  return std::max(static_cast<int32_t>(most), kLeastChunk);
}

// The expected cost of the next chunk of a context, or of all of it if it may not be chunked. Sets
// RequestView::max_chunk.
double CostlyRows::chunkCost(RequestView& r, const StepPrices& prices, int32_t chunk, double limit) const {
  int32_t rows = r.num_tokens - r.num_cached;
  if (chunked_context_ || r.was_paused) {
    r.max_chunk = longestChunk(r, prices, chunk, limit);
    rows = std::min({rows, chunk, r.max_chunk});
  }
  return r.adapter_size * readsOf(rows) + prices.scored * scoredOf(r, rows) +
         prices.context_attention * kv_.attentionSize(r.num_cached, rows);
}

// The group that begins with a running request.
CostlyRows::Group CostlyRows::groupAt(size_t begin, const StepPrices& prices) const {
  const RequestView& first = *costly_[begin];
  Group group{.begin = begin, .end = begin, .cost = 0, .steps_without_row = 0};
  double attention = 0;
  for (; group.end < costly_.size(); ++group.end) {
    const RequestView& r = *costly_[group.end];
    if (!r.running || !r.generating || r.client != first.client || r.adapter != first.adapter) break;
    const double of_row = prices.attention * kv_.of(r.num_tokens);
    // Rows in different steps would each read the adapter, so a group of short rows has all of them.
    if (group.end > begin && attention + of_row > r.adapter_size) break;
    attention += of_row;
    group.steps_without_row = std::max(group.steps_without_row, r.steps_without_row);
  }
  group.cost = first.adapter_size * readsOf(static_cast<int64_t>(group.end - begin)) + attention;
  return group;
}

// Sets computing_ for the client whose first request is costly_[begin].
void CostlyRows::findComputed(size_t begin) {
  computing_.clear();
  for (size_t i = begin; i < costly_.size(); ++i) {
    const RequestView& r = *costly_[i];
    if (!r.running || r.client != costly_[begin]->client) break;
    if (!r.generating) computing_.push_back(r.next_block);
  }
  std::ranges::sort(computing_);
}

// Whether the scheduler does not start the request before a costly context of its client has computed the next block.
bool CostlyRows::waitsForOwnContext(const RequestView& r) const {
  return !r.running && r.can_reuse_next && std::ranges::binary_search(computing_, r.next_block);
}

void CostlyRows::makeLanes(const StepPrices& prices, int32_t chunk, double limit) {
  members_.clear();
  lanes_.clear();
  groups_.clear();
  waiting_.clear();
  for (size_t i = 0; i < costly_.size();) {
    RequestView& r = *costly_[i];
    if (members_.empty() || members_.back().client != r.client) {
      lanes_.push_back({.member = members_.size(), .next = groups_.size(), .end = groups_.size()});
      lanes_.back().next_waiting = lanes_.back().end_waiting = waiting_.size();
      members_.push_back({.client = r.client, .weight = r.weight});
      findComputed(i);
    }
    Lane& lane = lanes_.back();
    double& demand = members_.back().demand;
    if (waitsForOwnContext(r)) {
      ++i;
      continue;
    }
    if (!r.running) {
      const double cost = chunkCost(r, prices, chunk, limit);
      if (r.has_place) {
        waiting_.push_back({&r, cost});
        demand += waiting_.back().cost;
        lane.end_waiting = waiting_.size();
      } else if (lane.without_place == nullptr) {
        lane.without_place = &r;
      }
      ++i;
      continue;
    }
    const Group group = r.generating ? groupAt(i, prices)
                                     : Group{.begin = i,
                                             .end = i + 1,
                                             .cost = chunkCost(r, prices, chunk, limit),
                                             .steps_without_row = r.steps_without_row};
    demand += group.cost;
    i = group.end;
    groups_.push_back(group);
    lane.end = groups_.size();
  }
  // The groups without a row for the longest come first.
  for (const Lane& lane : lanes_) {
    const auto key = [](const Group& group) { return std::tuple(-group.steps_without_row, group.begin); };
    std::sort(groups_.begin() + static_cast<ptrdiff_t>(lane.next), groups_.begin() + static_cast<ptrdiff_t>(lane.end),
              [&](const Group& a, const Group& b) { return key(a) < key(b); });
  }
}

bool CostlyRows::hasCostly(const ClientCredits::Client& client) const {
  const auto before = [](const ClientCredits::Member& member, const auto& other) { return member.client < other; };
  const auto found = std::lower_bound(members_.begin(), members_.end(), client, before);
  return found != members_.end() && found->client == client;
}

// The number of clients times the smallest demand, over the clients with any; 0 if a client without costly requests is
// here, or was within kAway.
double CostlyRows::sharedDemand(std::span<const RequestView> requests, Clock::time_point now) {
  const bool others = std::any_of(requests.begin(), requests.end(),
                                  [&](const RequestView& r) { return mayRun(r) && !hasCostly(r.client); });
  if (others) others_at_ = now;
  if (others_at_ && now - *others_at_ <= kAway) return 0;
  double least = std::numeric_limits<double>::max();
  int clients = 0;
  for (const ClientCredits::Member& member : members_) {
    if (member.demand == 0) continue;
    least = std::min(least, member.demand);
    ++clients;
  }
  return clients > 1 ? clients * least : 0;
}

// Lets costly requests start.
void CostlyRows::allowStarts(double limit) {
  // While something is owed, only clients without debts may start requests, or the client with the smallest debt.
  double least_credit = -std::numeric_limits<double>::max();
  if (owed_ > 0) {
    for (const Lane& lane : lanes_) {
      if (lane.next < lane.end || lane.next_waiting < lane.end_waiting)
        least_credit = std::max(least_credit, lane.credit);
    }
    least_credit = std::min(least_credit, 0.0);
  }
  startWithPlace(limit, least_credit);
  bool offered = !turns_.empty();
  startWithoutPlace(limit, least_credit);
  offered |= !turns_.empty();
  // Only steps with an offer count: debts may last so many steps that a client always met them in its turn.
  if (offered) ++offers_;
}

// Clients come first in turn, each for a few steps, because a request may get no tokens in some of them.
void CostlyRows::rotateTurns() {
  constexpr uint64_t kStepsFirst = 4;
  if (turns_.empty()) return;
  const auto first = static_cast<ptrdiff_t>(offers_ / kStepsFirst % turns_.size());
  std::rotate(turns_.begin(), turns_.begin() + first, turns_.end());
}

// Lets the lane's next request start. Returns its cost.
double CostlyRows::startNext(Lane& lane) {
  const Waiting& next = waiting_[lane.next_waiting++];
  next.request->skipped = false;
  return next.cost;
}

// Clients whose demand is at most their share start all their requests. Of the others' requests, one may start if less
// is owed than the limit, or if the limit and its client's credit cover its cost. More may while what is owed and the
// costs of all starts fit into the limit.
void CostlyRows::startWithPlace(double limit, double least_credit) {
  turns_.clear();
  double started = 0;
  for (Lane& lane : lanes_) {
    while (lane.met && lane.next_waiting < lane.end_waiting) started += startNext(lane);
    if (lane.next_waiting == lane.end_waiting || lane.credit < least_credit) continue;
    const double cost = waiting_[lane.next_waiting].cost;
    if (owed_ < limit || cost <= std::min(coveredBy(lane), limit)) turns_.push_back(&lane);
  }
  rotateTurns();
  for (bool first = true, any = true; any;) {
    any = false;
    for (Lane* lane : turns_) {
      if (lane->next_waiting == lane->end_waiting) continue;
      if (!first && owed_ + started + waiting_[lane->next_waiting].cost > limit) continue;
      started += startNext(*lane);
      first = false;
      any = true;
    }
  }
}

// One request may start for which another one has to be paused.
void CostlyRows::startWithoutPlace(double limit, double least_credit) {
  turns_.clear();
  for (Lane& lane : lanes_) {
    if (lane.without_place != nullptr && lane.credit >= least_credit && owed_ < limit) turns_.push_back(&lane);
  }
  rotateTurns();
  if (!turns_.empty()) turns_.front()->without_place->skipped = false;
}

// Gives rows to groups of the clients whose demand is at most their share, then of those with the most credit, while
// there are rows to give. rows: those without costs that are generated in this step. most_rows: as beginLimited().
// Returns all that are generated.
int64_t CostlyRows::allowGroups(int64_t rows, int64_t most_rows) {
  // Contexts may get no tokens in this step, so generated rows do not wait for them.
  double generated = 0, contexts = 0;
  const auto less = [](const Lane& a, const Lane& b) { return std::tie(a.met, a.credit) < std::tie(b.met, b.credit); };
  std::erase_if(lanes_, [](const Lane& lane) { return lane.next == lane.end; });
  std::make_heap(lanes_.begin(), lanes_.end(), less);
  while (!lanes_.empty()) {
    std::pop_heap(lanes_.begin(), lanes_.end(), less);
    Lane& lane = lanes_.back();
    const Group& group = groups_[lane.next];
    const bool generates = costly_[group.begin]->generating;
    const double limit = limitOf(std::min(rows, most_rows)), planned = generates ? generated : generated + contexts;
    // A row that the client's credit covers does not have to wait until owed_ is paid, which others may have caused.
    const bool covered = (lane.met || group.cost <= coveredBy(lane)) && planned + group.cost <= limit;
    if (!covered && owed_ + planned >= limit) {
      lanes_.pop_back();
      continue;
    }
    for (size_t i = group.begin; i < group.end; ++i) costly_[i]->skipped = false;
    if (generates) rows += static_cast<int64_t>(group.end - group.begin);
    (generates ? generated : contexts) += group.cost;
    lane.credit -= group.cost / members_[lane.member].weight;
    ++lane.next;
    if (lane.next < lane.end)
      std::push_heap(lanes_.begin(), lanes_.end(), less);
    else
      lanes_.pop_back();
  }
  return rows;
}

int64_t CostlyRows::beginLimited(std::span<RequestView> requests, const StepPrices& prices, int32_t chunk,
                                 int64_t most_rows, Clock::time_point now) {
  settle();
  row_price_ = prices.row;
  costs_.reserve(requests.size());
  adapters_.begin(requests.size());
  int64_t rows = 0, all_rows = 0;  // generated ones: without costs, and all
  for (const RequestView& r : requests) {
    all_rows += r.generating ? 1 : 0;
    rows += r.generating && !isCostly(r, prices) ? 1 : 0;
  }
  const int64_t others = std::min(rows, most_rows);
  collect(requests, prices);
  makeLanes(prices, chunk, readsOf(std::max<int64_t>(others, 1), row_price_));
  shared_demand_ = sharedDemand(requests, now);

  credits_.divide(members_, std::max(limitOf(others), rest_));
  limited_ = true;
  for (Lane& lane : lanes_) {
    lane.met = members_[lane.member].met;
    lane.credit = members_[lane.member].credit;
  }
  double demand = 0;
  for (const ClientCredits::Member& member : members_) demand += member.demand;
  if (owed_ + demand <= limitOf(std::min(all_rows, most_rows))) return all_rows;

  for (RequestView* r : costly_) r->skipped = true;
  allowStarts(limitOf(others));
  return allowGroups(rows, most_rows);
}

std::span<const CostlyRows::Cost> CostlyRows::count(std::span<const RequestView> requests, const SchedulerPlan& plan,
                                                    const StepPrices& prices) noexcept {
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
    const int32_t scored = scoredOf(r, planned.num_tokens);
    const double price = planned.context ? prices.context_attention : prices.attention;
    const Cost cost{.adapters = adapters_.cost(r.adapter, r.adapter_size, planned.num_tokens),
                    .scored = prices.scored * scored,
                    .attention = price * kv_.attentionSize(r.num_cached, planned.num_tokens)};
    costs_.push_back(cost);
    (planned.context ? prompt : generated) += planned.num_tokens - scored;
    if (scored == 0 && !isCostlyAdapter(r.adapter_size) && !isCostlyAttention(prices, kv_, r.num_tokens, r.generating))
      continue;
    spent_ += cost.total();
    credits_.charge(r.client, cost.total());
  }
  rest_ = readsOf(std::max<int64_t>(generated, 1), prices.row) + prices.context * static_cast<double>(prompt);
  return costs_;
}

}  // namespace chorus
