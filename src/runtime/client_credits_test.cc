#include "runtime/client_credits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace chorus {
namespace {

using Member = ClientCredits::Member;

// The shares of the first division.
std::vector<double> sharesOf(std::vector<Member> members, double limit) {
  ClientCredits credits;
  credits.divide(members, limit);
  std::vector<double> shares;
  for (const Member& member : members) shares.push_back(member.credit * member.weight);
  return shares;
}

TEST(ClientCredits, SharesAreMaxMinFair) {
  EXPECT_EQ(sharesOf({{1, 1, 9}, {2, 1, 9}}, 4), (std::vector<double>{2, 2}));
  EXPECT_EQ(sharesOf({{1, 1, 0.5}, {2, 1, 1.5}, {3, 1, 9}}, 6), (std::vector<double>{0.5, 1.5, 4}));
  EXPECT_EQ(sharesOf({{1, 1, 9}, {2, 3, 9}}, 8), (std::vector<double>{2, 6}));
  EXPECT_EQ(sharesOf({{1, 1, 1}, {2, 1, 2}}, 8), (std::vector<double>{1, 2})) << "nobody gets more than the demand";
  EXPECT_EQ(sharesOf({{std::nullopt, 1, 0}, {2, 1, 9}}, 8), (std::vector<double>{0, 8}));
}

TEST(ClientCredits, ADivisionLeavesNothingThatIsAskedFor) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> demand(0, 4);
  for (int round = 0; round < 200; ++round) {
    std::vector<Member> members;
    double demands = 0;
    for (uint64_t client = 0; client <= random() % 40; ++client) {
      members.push_back({client, static_cast<int32_t>(1 + random() % 5), demand(random)});
      demands += members.back().demand;
    }
    const double limit = 10 * demand(random);
    double given = 0;
    for (const double share : sharesOf(members, limit)) given += share;
    EXPECT_NEAR(given, std::min(limit, demands), 1e-9);
  }
}

TEST(ClientCredits, WhatIsUsedIsTakenFromTheCredit) {
  ClientCredits credits;
  std::vector<Member> members{{1, 2, 9}, {2, 2, 9}};
  credits.divide(members, 4);
  credits.charge(1, 3);
  credits.charge(3, 1);
  credits.divide(members, 4);
  EXPECT_EQ(members[0].credit, 1 - 1.5 + 1);
  EXPECT_EQ(members[1].credit, 2);
}

TEST(ClientCredits, ADebtIsPaidFromSharesAndRemembered) {
  ClientCredits credits;
  std::vector<Member> both{{1, 1, 1}, {2, 1, 9}}, second{{2, 1, 9}};
  credits.divide(both, 2);
  credits.charge(1, 11);
  credits.divide(second, 2);
  both[1].demand = 0;
  credits.divide(both, 4);
  EXPECT_EQ(both[0].credit, -10 + 2 + 4) << "the debt is part of what it needs";
}

TEST(ClientCredits, CreditsAndDebtsAreBounded) {
  ClientCredits credits;
  std::vector<Member> members{{1, 1, 1}, {2, 1, 1}};
  for (int step = 0; step < 100; ++step) {
    credits.divide(members, 1);
    credits.charge(2, 1000);
  }
  EXPECT_LE(members[0].credit, 32);
  EXPECT_GE(members[1].credit, -32);
}

TEST(ClientCredits, ACreditIsNotKeptForAClientThatLeaves) {
  ClientCredits credits;
  std::vector<Member> members{{1, 1, 4}}, other{{2, 1, 4}};
  for (int step = 0; step < 3; ++step) credits.divide(members, 4);
  EXPECT_EQ(members[0].credit, 12);
  credits.divide(other, 4);
  credits.divide(members, 4);
  EXPECT_EQ(members[0].credit, 4);
}

// The first member's need is a third of the limit, which is also the share of each: rounding decides which is larger.
TEST(ClientCredits, NeedsAtTheLevelAreShared) {
  ClientCredits credits;
  std::vector<Member> members{{1, 1, 0.3}, {2, 1, 1.4}, {3, 1, 0.7}};
  credits.divide(members, 0);
  credits.charge(2, 0.1);
  credits.charge(3, 0.1);
  const double limit = 3 * 0.3;
  credits.divide(members, limit);
  EXPECT_NEAR(members[0].credit + members[1].credit + members[2].credit + 0.2, limit, 1e-12);
}

TEST(ClientCredits, TooManyAbsentDebtorsAreForgotten) {
  for (const uint64_t absent : {ClientCredits::kMostAbsent, ClientCredits::kMostAbsent + 1}) {
    ClientCredits credits;
    std::vector<Member> members, one{{0, 1, 0}};
    for (uint64_t client = 1; client <= absent; ++client) members.push_back({client, 1, 1});
    credits.divide(members, 0);
    for (uint64_t client = 1; client <= absent; ++client) credits.charge(client, 30);
    credits.divide(one, 0);
    credits.divide(members, 0);
    EXPECT_EQ(members[0].credit, absent > ClientCredits::kMostAbsent ? 0 : -30);
  }
}

TEST(ClientCredits, AnAbsentDebtorIsChargedToo) {
  ClientCredits credits;
  std::vector<Member> members{{1, 1, 1}, {2, 1, 1}}, second{{2, 1, 1}};
  credits.divide(members, 0);
  credits.charge(1, 5);
  credits.divide(second, 0);
  credits.charge(1, 2);
  credits.divide(members, 0);
  EXPECT_EQ(members[0].credit, -7);
}

}  // namespace
}  // namespace chorus
