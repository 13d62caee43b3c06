#include "server/http/connection_limits.h"

#include <gtest/gtest.h>

#include <vector>

namespace chorus::server {
namespace {

using Phase = ConnectionPhase;
constexpr ConnectionLimits kLimits{.connections = 6, .per_client = 4, .reserve = 2};

Placement place(const std::vector<ConnectionView>& open, uint64_t client, bool unlimited = false) {
  return placeConnection(open, client, unlimited, kLimits);
}

TEST(ConnectionLimits, RoomForEverybody) {
  const Placement placement = place({{1, Phase::kBusy}, {1, Phase::kIdle}, {2, Phase::kSilent}}, 1);
  EXPECT_FALSE(placement.reserved);
  EXPECT_FALSE(placement.evicted);
}

TEST(ConnectionLimits, AClientsOwnIdleConnectionsAreClosedFirst) {
  const std::vector<ConnectionView> open = {{1, Phase::kBusy, 1},
                                            {1, Phase::kIdle, 2},
                                            {1, Phase::kSilent, 4},
                                            {1, Phase::kSilent, 3},
                                            {2, Phase::kLingering, 0}};
  EXPECT_EQ(place(open, 1).evicted, 3u) << "never sent a byte, and the oldest of these";
  EXPECT_FALSE(place(open, 1).reserved);
  EXPECT_FALSE(place(open, 1, true).evicted) << "a proxy has no limit of its own";
  EXPECT_FALSE(place(open, 2).evicted);
  const std::vector<ConnectionView> arriving = {
      {1, Phase::kBusy}, {1, Phase::kBody}, {1, Phase::kHead}, {1, Phase::kBusy}};
  EXPECT_EQ(place(arriving, 1).evicted, 2u) << "a body that arrives does not give way to its own client";
}

TEST(ConnectionLimits, BeyondTheServersLimitTheGreediestGiveWay) {
  const std::vector<ConnectionView> open = {{1, Phase::kIdle, 9},   {1, Phase::kIdle, 8},      {1, Phase::kBusy, 7},
                                            {2, Phase::kSilent, 1}, {3, Phase::kLingering, 1}, {4, Phase::kBusy, 1}};
  EXPECT_EQ(place(open, 5).evicted, 1u);
  EXPECT_FALSE(place(open, 5).reserved);
  const std::vector<ConnectionView> arriving = {{1, Phase::kBody, 2}, {1, Phase::kHead, 3}, {1, Phase::kBusy},
                                                {2, Phase::kBody, 1}, {3, Phase::kHead, 1}, {4, Phase::kBusy}};
  EXPECT_EQ(place(arriving, 5).evicted, 1u) << "of the client that holds most; a head before a body";
  EXPECT_FALSE(place(arriving, 5).reserved);
  const Placement equal = place(arriving, 1);
  EXPECT_TRUE(equal.reserved) << "requests that arrive give way only to who holds fewer";
  EXPECT_FALSE(equal.evicted);
}

// Half-sent requests of many clients once cost another client the connection that it had between two requests.
TEST(ConnectionLimits, AnIdleConnectionGivesWayOnlyToWhoHoldsFewer) {
  const std::vector<ConnectionView> open = {{1, Phase::kHead, 9}, {1, Phase::kHead, 8}, {2, Phase::kHead, 7},
                                            {2, Phase::kHead, 6}, {3, Phase::kIdle, 1}, {3, Phase::kBusy, 1}};
  EXPECT_TRUE(place(open, 1).reserved);
  EXPECT_FALSE(place(open, 1).evicted);
  EXPECT_EQ(place(open, 3).evicted, 4u) << "a client's own idle connection gives way to its next one";
  EXPECT_EQ(place(open, 4).evicted, 4u) << "a client without connections gets the first";
}

TEST(ConnectionLimits, TheReserveIsForTheRest) {
  std::vector<ConnectionView> open(6, {1, Phase::kBusy, 5});
  EXPECT_TRUE(place(open, 2).reserved);
  open.push_back({2, Phase::kSilent, 9, true});
  EXPECT_FALSE(place(open, 2).evicted);
  open.push_back({3, Phase::kSilent, 8, true});
  const Placement placement = place(open, 4);
  EXPECT_TRUE(placement.reserved);
  EXPECT_EQ(placement.evicted, 7u) << "the oldest of the reserve";
  EXPECT_FALSE(place({{2, Phase::kSilent, 9, true}}, 2).reserved) << "the reserve does not count";
  open[7].phase = Phase::kBusy;
  EXPECT_EQ(place(open, 4).evicted, 6u) << "an answer is not cut off";
  EXPECT_FALSE(place(open, 4).refused);
  open[6].phase = Phase::kBusy;
  EXPECT_TRUE(place(open, 4).refused);
  EXPECT_FALSE(place(open, 4).evicted);
}

TEST(ConnectionLimits, EvictedConnectionsDoNotCountAndAreNotEvictedAgain) {
  std::vector<ConnectionView> open(6, {1, Phase::kBusy, 5});
  open[0].phase = Phase::kEvicted;
  EXPECT_FALSE(place(open, 2).reserved);
  EXPECT_FALSE(place(open, 2).evicted);
  open.push_back({2, Phase::kBusy, 5});
  EXPECT_TRUE(place(open, 3).reserved);
  open.push_back({2, Phase::kEvicted, 1, true});
  open.push_back({2, Phase::kSilent, 2, true});
  EXPECT_FALSE(place(open, 3).evicted) << "one slot of the reserve is free";
  open.push_back({2, Phase::kSilent, 3, true});
  EXPECT_EQ(place(open, 3).evicted, 8u);
}

}  // namespace
}  // namespace chorus::server
