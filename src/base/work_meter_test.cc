#include "base/work_meter.h"

#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <stdexcept>
#include <vector>

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

class LimitedMemory final : public WorkMemory {
 public:
  explicit LimitedMemory(size_t limit) : limit_(limit) {}
  void grant(size_t bytes) override {
    if (bytes > limit_) throw std::length_error("refused");
    granted.push_back(bytes);
  }
  std::vector<size_t> granted;

 private:
  size_t limit_;
};

TEST(WorkMeterTest, MemoryIsGrantedInStepsBeyondWhatIsFree) {
  constexpr size_t kStep = WorkMeter::kFreeMemory;
  LimitedMemory memory(3 * kStep);
  WorkMeter meter;
  meter.setMemory(&memory);
  meter.hold(kStep);
  EXPECT_TRUE(memory.granted.empty());
  meter.hold(1);
  meter.giveBack(1);
  meter.hold(kStep);
  EXPECT_EQ(memory.granted, std::vector{2 * kStep}) << "what was granted stays granted";
  EXPECT_THROW(meter.hold(2 * kStep), std::length_error);
  EXPECT_THROW(meter.hold(std::numeric_limits<size_t>::max()), std::bad_alloc);
  EXPECT_EQ(meter.held(), 2 * kStep) << "what is refused is not held";
  meter.hold(kStep);
  EXPECT_EQ(memory.granted, (std::vector{2 * kStep, 3 * kStep}));
}

TEST(WorkMeterTest, WithoutMemoryNothingIsRefused) {
  WorkMeter meter;
  meter.hold(std::numeric_limits<size_t>::max() / 2);
  meter.giveBack(std::numeric_limits<size_t>::max() / 2);
  EXPECT_EQ(meter.held(), 0u);
}

}  // namespace
}  // namespace chorus
