// What an engine asks of an adapter.
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

// Throws Error(kUnsupported) that names the build flag: the engine was built without --lora_plugin or, for a DoRA
// adapter, --dora_plugin, or a module is not among its --lora_target_modules. Those are TensorRT-LLM's modules: what it
// has no name for (the embedding, the output head, whole weights) they do not restrict.
void checkServable(const Adapter& adapter, const BuildConfig& build);

// TensorRT-LLM's names of the modules that adapters of a model may target, in the order of their ids.
std::vector<std::string> loraModules(const WeightTable& table);

// Throws Error(kInvalidArgument) when --lora_target_modules has names that the model does not, with these and the
// model's.
void checkTargetModules(const BuildConfig& build, const WeightTable& table, std::string_view architecture);

// Of A and B over all modules, rank x (in + out) each, and of what stands for the base's weights: what caches that are
// sized in adapters count by.
int64_t adapterElements(const Adapter& adapter);

}  // namespace chorus
