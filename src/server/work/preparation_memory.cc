#include "server/work/preparation_memory.h"

#include <utility>

#include "server/errors.h"

namespace chorus::server {

PreparationMemory::PreparationMemory(WorkMeter& meter, std::shared_ptr<Client> client)
    : meter_(meter), charge_(std::move(client)) {
  meter_.setMemory(this);
}

void PreparationMemory::grant(size_t bytes) {
  checkShare(charge_, bytes);
  addCharge(charge_, bytes - charge_.bytes());
}

}  // namespace chorus::server
