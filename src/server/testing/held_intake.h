// Keeps the worker of an intake busy while a test looks at what waits behind it.
#pragma once

#include <future>
#include <memory>

#include "server/work/intake.h"

namespace chorus::server {

// Occupies one worker from construction until release().
class HeldIntake {
 public:
  explicit HeldIntake(Intake& intake) {
    auto begun = std::make_shared<std::promise<void>>();
    std::future<void> begins = begun->get_future();
    intake.submit(std::make_shared<Intake::Ticket>(),
                  {.work = [begun, released = released_.get_future().share()](WorkMeter&) {
                    begun->set_value();
                    released.wait();
                  }});
    begins.wait();
  }
  void release() { released_.set_value(); }

 private:
  std::promise<void> released_;
};

}  // namespace chorus::server
