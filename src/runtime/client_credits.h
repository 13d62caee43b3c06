// Divides each step's limit between clients, and remembers how much of its shares each has left or has overdrawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace chorus {

// Not thread-safe. Amounts are in reads (runtime/step_costs.h).
class ClientCredits {
 public:
  using Client = std::optional<uint64_t>;
  // A client that asks for a share in this step.
  struct Member {
    Client client;
    int32_t weight = 1;
    double demand = 0;  // what it can use in this step
    // Set by divide(): its shares so far less what it was charged, per unit of weight, within bounds. Below 0: a debt.
    double credit = 0;
    // Set by divide(): whether its share of this step is all of its demand and its debt. The demands of all such
    // members together are at most the limit.
    bool met = false;
  };
  // Clients in debt that are no members are remembered. If there are more than this, all of them are forgotten.
  static constexpr size_t kMostAbsent = 1024;

  // Gives each member a share of `limit` and adds it to its credit. Shares are in proportion to the weights, but nobody
  // gets more than its demand and its debt; the others divide what that leaves. Debts of clients that are no members
  // shrink too, by an equal share, as if they had stayed; their credits are forgotten. A client may be in `members`
  // once.
  void divide(std::span<Member> members, double limit);
  // Subtracts what a client used. Without effect for a client that neither was a member of the latest divide() nor is
  // in debt.
  void charge(const Client& client, double amount) noexcept;
  void forgetAll() noexcept { accounts_.clear(); }

 private:
  struct Account {
    double credit = 0;  // as Member::credit
    int32_t weight = 1;
    bool present = false;
  };
  void updateAccounts(std::span<Member> members);

  std::map<Client, Account> accounts_;
};

}  // namespace chorus
