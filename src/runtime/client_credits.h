// Divides a limit between clients in each step, and keeps what each has left of its shares, or is in debt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace chorus {

// Not thread-safe. Amounts are in any unit, for example reads (runtime/step_costs.h).
class ClientCredits {
 public:
  using Client = std::optional<uint64_t>;
  // A client that asks for a share in this step.
  struct Member {
    Client client;
    int32_t weight = 1;
    double demand = 0;  // what it can use in this step
    // Set by divide(): its earlier shares and this step's, less what it was charged, all divided by its weight.
    // Negative: a debt.
    double credit = 0;
  };
  // Limit on the clients that are remembered without asking, because they have debts.
  static constexpr size_t kMostAbsent = 1024;

  // Adds its share of `limit` to each member's credit. The shares are max-min fair by weights: who needs less than an
  // equal share, for its demand and its debt, gets only that, which leaves more for each of the others. Debts of other
  // clients get smaller too, but a client saves nothing by leaving and coming back.
  void divide(std::span<Member> members, double limit);
  // Takes what a client used from its credit. Does nothing if it was no member of the latest divide().
  void charge(const Client& client, double amount, int32_t weight) noexcept;
  void forgetAll() noexcept { accounts_.clear(); }

 private:
  struct Account {
    double credit = 0;  // see Member::credit
    bool present = false;
  };
  void open(std::span<const Member> members);

  std::map<Client, Account> accounts_;
};

}  // namespace chorus
