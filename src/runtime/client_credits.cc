#include "runtime/client_credits.h"

#include <algorithm>

namespace chorus {
namespace {

// Credits are kept up to this many steps' shares, for a client that has to wait before it can use them.
constexpr double kMostShares = 32;
// No debt is larger. A client gets into debt while others ask for little, and should not wait long once they ask for
// more.
double mostDebt(double limit) { return std::max(32.0, 8 * limit); }

// Its demand and its debt, per unit of weight.
double needOf(const ClientCredits::Member& member) {
  return member.demand / member.weight + std::max(-member.credit, 0.0);
}

// The share of a weight of 1 of those members whose need is larger. The others get their need.
double shareLevel(std::span<const ClientCredits::Member> members, double limit) {
  double level = -1;  // members whose need is at most this get it; at first none
  for (size_t met = 0, met_before = 0;; met_before = met) {
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
    // A member whose need is met leaves the rest of its share to the others, so the level rises. It has its final value
    // when a round meets no further need. Rounding can lower it a little, and then fewer needs are met than before.
    if (weights == 0 || (level >= 0 && met <= met_before)) return level;
    level = std::max(left / weights, 0.0);
  }
}

}  // namespace

// Opens accounts for the members, and drops those that need not be remembered. Sets each Member::credit to the credit
// of its account, to which divide() has not yet added this step's share.
void ClientCredits::updateAccounts(std::span<Member> members) {
  for (auto& [_, account] : accounts_) account.present = false;
  for (Member& member : members) {
    Account& account = accounts_[member.client];
    account.present = true;
    account.weight = member.weight;
    member.credit = account.credit;
  }
  const bool too_many = accounts_.size() > members.size() + kMostAbsent;
  std::erase_if(accounts_,
                [&](const auto& entry) { return !entry.second.present && (entry.second.credit >= 0 || too_many); });
}

void ClientCredits::divide(std::span<Member> members, double limit) {
  updateAccounts(members);
  const double most_debt = mostDebt(limit), level = shareLevel(members, limit);
  double weights = 0;
  for (Member& member : members) {
    member.met = needOf(member) <= level;
    const double share = std::min(needOf(member), level);
    member.credit = std::clamp(member.credit + share, -most_debt, kMostShares * share);
    accounts_.find(member.client)->second.credit = member.credit;
    weights += member.weight;
  }
  const double equal_share = limit / std::max(weights, 1.0);
  for (auto& [_, account] : accounts_) {
    if (!account.present) account.credit = std::max(account.credit, -most_debt) + equal_share;
  }
}

void ClientCredits::charge(const Client& client, double amount) noexcept {
  const auto found = accounts_.find(client);
  if (found != accounts_.end()) found->second.credit -= amount / found->second.weight;
}

}  // namespace chorus
