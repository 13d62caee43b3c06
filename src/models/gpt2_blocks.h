// Shared by the architectures with GPT-2's config: GPT-2, GPT-BigCode and GPT-J. The first two also share the
// tensors, except how the source stores linears, and the structure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.h"
#include "models/decoder_rows.h"
#include "models/source_config.h"

namespace chorus {

// The keys that readGpt2Config reads, and those that change nothing. An architecture adds its own ones.
SourceKeys gpt2Keys();
// Reads sizes, activation, norm epsilon and tying. json: with the defaults of the architecture where they differ from
// GPT-2's (withDefaults). The caller sets architecture, positions and biases, and calls finalize.
ModelConfig readGpt2Config(const Json& json, std::string_view source);

// The weight table: learned positions, two layer norms in a layer, an MLP without a gate, biases.
struct Gpt2Form {
  bool transposed = false;  // the source stores linears as [in, out], as transformers' Conv1D does
  std::function<void(DecoderRows&)> qkv;
};
WeightTable gpt2Table(const ModelConfig& config, const Gpt2Form& form);
ModelSpec gpt2Spec(const ModelConfig& config);
std::vector<FieldValues> gpt2Fields();
// Masks in old files, and the output head of files whose model ties it.
std::vector<std::string> gpt2IgnoredSources();

}  // namespace chorus
