// Charges the memory that the preparation of a request holds (its template's values, its tokenizer's tables) to the
// request's client.
#pragma once

#include <cstddef>
#include <memory>

#include "base/work_meter.h"
#include "server/http/client.h"

namespace chorus::server {

// Grants the meter's memory while it exists. The meter must outlive it.
class PreparationMemory final : public WorkMemory {
 public:
  // client: null if the memory is charged to nobody.
  PreparationMemory(WorkMeter& meter, std::shared_ptr<Client> client);
  ~PreparationMemory() override { meter_.setMemory(nullptr); }
  PreparationMemory(const PreparationMemory&) = delete;
  PreparationMemory& operator=(const PreparationMemory&) = delete;

  // Throws ApiError: 400 if it is more than the share of any client, 429 or 503 if it is too much at present.
  void grant(size_t bytes) override;

 private:
  WorkMeter& meter_;
  ClientCharge charge_;
};

}  // namespace chorus::server
