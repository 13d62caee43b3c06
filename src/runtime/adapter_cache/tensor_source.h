// An adapter that comes with a request as tensors (executor::LoraConfig).
#pragma once

#include <memory>

#include "chorus/request.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// Returns null if the LoraConfig is only a task id. element_bytes: bytes of one packed weight times the number of
// tensor-parallel ranks. The tensors are not checked here: whatever they hold, the sizes of the source are upper bounds
// of what the loaded adapter takes.
std::shared_ptr<const AdapterSource> tensorSource(const executor::LoraConfig& lora, int64_t element_bytes);

}  // namespace chorus
