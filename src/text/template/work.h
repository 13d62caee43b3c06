// The work of one template: its own limit, within the limit of the request's meter.
#pragma once

#include <cstdint>

#include "base/work_meter.h"
#include "text/template/template_error.h"

namespace chorus::tmpl {

class Work {
 public:
  // Charge for evaluating one expression or statement, in addition to the bytes of texts and values that it processes.
  static constexpr uint64_t kStep = 64;

  // The meter must outlive this object.
  Work(WorkMeter& meter, uint64_t limit) : meter_(meter), limit_(limit) {}

  // Throws TemplateError beyond the template's own limit, and what the meter throws.
  void charge(uint64_t bytes) {
    meter_.charge(bytes);
    if (bytes > limit_ - spent_) raise("the template exceeds its limit of {} bytes of work", limit_);
    spent_ += bytes;
  }
  void raiseLimit(uint64_t by) { limit_ += by < UINT64_MAX - limit_ ? by : UINT64_MAX - limit_; }
  uint64_t spent() const { return spent_; }

 private:
  WorkMeter& meter_;
  uint64_t limit_;
  uint64_t spent_ = 0;
};

}  // namespace chorus::tmpl
