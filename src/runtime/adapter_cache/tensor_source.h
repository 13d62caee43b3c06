// The tensors of a request as a source of its adapter.
#pragma once

#include "chorus/request_config.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// Null without tensors. Copies those that the client owns and hashes all. element_bytes: of a packed weight.
std::shared_ptr<const AdapterSource> tensorSource(const executor::LoraConfig& lora, int64_t element_bytes);

}  // namespace chorus
