// Checks whether an engine can serve an adapter, and counts an adapter's elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "engine/build_config.h"
#include "lora/adapter.h"

namespace chorus {

class BackgroundThrottle;

// Throws Error(kUnsupported) that names the build flag if the engine was built without --lora_plugin or, for a DoRA
// adapter, without --dora_plugin, or if --lora_target_modules does not list one of the adapter's modules. The list has
// TensorRT-LLM's modules; it does not restrict what has no name there (the embedding, the output head, whole weights).
void checkServable(const Adapter& adapter, const BuildConfig& build);

// The types in which an engine holds an adapter's values.
struct AdapterTypes {
  const WeightTable& table;  // of the model; a row may have a type of its own
  DType model = DType::kFloat32;
  bool int8_terms = false;  // A and B are integers (--lora_storage int8)
};
// Throws Error(kInvalidArgument) that names the adapter and the module if a value is infinite in the type in which the
// engine holds it. An infinite value would become NaN in the rows of other requests, which multiply it by zeros
// (BlockTerm). throttle: is charged for the values; may be null. Does nothing if only shapes were read.
void checkValues(const Adapter& adapter, const AdapterTypes& types, BackgroundThrottle* throttle);

// Whether the weight takes no memory if it equals the base's: a saved embedding or output head of the model's tokens
// (Session::dropCopiesOfBase).
bool mayBeCopyOfBase(const Adapter& adapter, const AdapterWeight& weight);

// TensorRT-LLM's names of the modules that adapters of a model may target, in the order of their ids.
std::vector<std::string> loraModules(const WeightTable& table);

// Throws Error(kInvalidArgument) if --lora_target_modules has names that the model does not have. The message lists
// these names and the model's.
void checkTargetModules(const BuildConfig& build, const WeightTable& table, std::string_view architecture);

// Number of elements of an adapter: rank x (in + out) for A and B of every module, plus the weights and rows that
// replace the base's. Caches whose size is given in adapters count these elements.
int64_t adapterElements(const Adapter& adapter);

}  // namespace chorus
