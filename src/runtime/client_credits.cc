#include "runtime/client_credits.h"

#include <algorithm>

namespace chorus {
namespace {

// Credits are kept up to this many steps' shares, for a client that has to wait before it can use them.
constexpr double kMostShares = 32;
// Debts are kept up to so much: a client that was served more while others asked for less waits for them no longer.
double mostDebt(double limit) { return std::max(32.0, 8 * limit); }

// What the member can use, divided by its weight.
double needOf(const ClientCredits::Member& member) {
  return member.demand / member.weight + std::max(-member.credit, 0.0);
}

// The max-min fair share of a weight of 1. Members that need less get only that.
double shareLevel(std::span<const ClientCredits::Member> members, double limit) {
  double level = -1;  // above the needs of the members whose needs are met
  // Each round finds more members whose needs are met, or none. Rounding must not make it go back and forth.
  for (size_t round = 0, met = 0; round <= members.size(); ++round) {
    const size_t met_before = met;
    double left = limit, weights = 0;
    met = 0;
    for (const ClientCredits::Member& member : members) {
      if (needOf(member) <= level) {
        left -= needOf(member) * member.weight;
        ++met;
      } else {
        weights += member.weight;
      }
    }
    if (weights == 0 || (round > 0 && met == met_before)) break;
    level = left / weights;
  }
  return level;
}

}  // namespace

void ClientCredits::open(std::span<const Member> members) {
  for (auto& [_, account] : accounts_) account.present = false;
  for (const Member& member : members) accounts_[member.client].present = true;
  const bool too_many = accounts_.size() > members.size() + kMostAbsent;
  std::erase_if(accounts_,
                [&](const auto& entry) { return !entry.second.present && (entry.second.credit >= 0 || too_many); });
}

void ClientCredits::divide(std::span<Member> members, double limit) {
  open(members);
  double all_weights = 0;
  for (Member& member : members) {
    member.credit = accounts_.find(member.client)->second.credit;
    all_weights += member.weight;
  }
  const double most_debt = mostDebt(limit), level = shareLevel(members, limit);
  for (Member& member : members) {
    const double share = std::min(needOf(member), level);
    member.credit = std::clamp(member.credit + share, -most_debt, kMostShares * share);
    accounts_.find(member.client)->second.credit = member.credit;
  }
  const double equal_share = limit / std::max(all_weights, 1.0);
  for (auto& [_, account] : accounts_) {
    if (!account.present) account.credit = std::max(account.credit, -most_debt) + equal_share;
  }
}

void ClientCredits::charge(const Client& client, double amount, int32_t weight) noexcept {
  if (const auto found = accounts_.find(client); found != accounts_.end()) found->second.credit -= amount / weight;
}

}  // namespace chorus
