#include "base/work_meter.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

WorkStopped::Reason reasonOf(WorkMeter& meter, uint64_t bytes) {
  try {
    meter.charge(bytes);
  } catch (const WorkStopped& stopped) {
    return stopped.reason();
  }
  throw std::logic_error("the meter did not stop");
}

TEST(WorkMeterTest, StopsAtTheFirstByteBeyondTheLimit) {
  WorkMeter meter({.work = 1000});
  meter.charge(999);
  meter.charge(1);
  EXPECT_EQ(meter.left(), 0u);
  EXPECT_EQ(reasonOf(meter, 1), WorkStopped::Reason::kWork);
  EXPECT_EQ(reasonOf(meter, 1), WorkStopped::Reason::kWork) << "once exceeded, always exceeded";
}

TEST(WorkMeterTest, HugeChargesDoNotWrapAround) {
  WorkMeter meter({.work = 1000});
  EXPECT_EQ(reasonOf(meter, WorkMeter::kUnlimited), WorkStopped::Reason::kWork);
  EXPECT_EQ(reasonOf(meter, WorkMeter::kUnlimited), WorkStopped::Reason::kWork);
}

TEST(WorkMeterTest, WithoutLimitsNothingStops) {
  WorkMeter meter;
  meter.charge(uint64_t{1} << 62);
  meter.charge(uint64_t{1} << 62);
  EXPECT_EQ(meter.spent(), uint64_t{1} << 63);
}

TEST(WorkMeterTest, StopsAfterItsDeadline) {
  WorkMeter meter({.deadline = WorkMeter::Clock::now() - std::chrono::milliseconds(1)});
  EXPECT_EQ(reasonOf(meter, WorkMeter::kLookEvery), WorkStopped::Reason::kDeadline);
}

TEST(WorkMeterTest, StopsOnceCancelled) {
  WorkMeter meter;
  meter.charge(WorkMeter::kLookEvery);
  meter.cancel();
  EXPECT_EQ(reasonOf(meter, WorkMeter::kLookEvery), WorkStopped::Reason::kCancelled);
}

}  // namespace
}  // namespace chorus
