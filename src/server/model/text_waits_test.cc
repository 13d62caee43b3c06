#include "server/model/text_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus::server {
namespace {

using testing::ElementsAre;

TEST(TextWaitsTest, WaitsAreTakenOnceByNameAgeOrId) {
  using std::chrono::seconds;
  const TextWaits::Clock::time_point begin{};
  TextWaits waits;
  std::vector<int> called;
  const auto note = [&](int number) { return [&called, number] { called.push_back(number); }; };
  const auto run = [](const std::vector<TextWaits::Then>& calls) {
    for (const auto& call : calls) call();
  };
  waits.add("z", note(1), begin);
  const auto second = waits.add("a", note(2), begin + seconds(1));
  waits.add("z", note(3), begin + seconds(2));
  waits.add("m", note(4), begin + seconds(3));
  waits.add("n", note(5), begin + seconds(4));
  EXPECT_THAT(waits.adapters(), ElementsAre("z", "a", "m", "n"));
  waits.take(second)();
  EXPECT_FALSE(waits.take(second));
  EXPECT_THAT(waits.adapters(), ElementsAre("z", "m", "n"));
  run(waits.takeAllOf("z"));
  EXPECT_TRUE(waits.takeAllOf("z").empty());
  run(waits.takeOlderThan(begin + seconds(3)));
  EXPECT_THAT(called, ElementsAre(2, 1, 3));
  run(waits.takeOlderThan(begin + seconds(4)));
  run(waits.takeAll());
  EXPECT_THAT(called, ElementsAre(2, 1, 3, 4, 5));
  EXPECT_TRUE(waits.adapters().empty());
}

}  // namespace
}  // namespace chorus::server
