// An adapter that comes with a request, as tensors (spec S2).
#pragma once

#include <memory>

#include "chorus/request.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// Null when the LoraConfig is a task id alone. element_bytes: of a packed weight, over all tensor-parallel ranks. The
// tensors are unchecked: whatever they hold, the sizes are at least what an adapter that loads from them takes.
std::shared_ptr<const AdapterSource> tensorSource(const executor::LoraConfig& lora, int64_t element_bytes);

}  // namespace chorus
