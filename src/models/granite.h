// Granite: Llama's tensors and layers, with multipliers of the embeddings, of attention scores, of what a block adds to
// the residual, and of logits.
#pragma once

#include "models/architecture.h"
#include "models/source_config.h"

namespace chorus {

Architecture graniteArchitecture();

// Functions for the multipliers and biases that all Granite models have: the source's keys, their values in a finalised
// config, their effect on a structure, and the fields of a checkpoint. Errors name source and key.
void addGraniteKeys(SourceKeys& keys);
void readGraniteMultipliers(const Json& json, std::string_view source, ModelConfig& config);
void applyGraniteMultipliers(const ModelConfig& config, ModelSpec& spec);
void addGraniteFields(std::vector<FieldValues>& fields);

}  // namespace chorus
