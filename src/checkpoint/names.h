// Names of a checkpoint's tensors: those that a reader must know before it has a weight table, names of quantisation
// scales, and lists of names in error lines and ignore rules.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// The presence of these tensors determines whether a model ties its output head to its embedding. Every architecture's
// table uses these names, which are TensorRT-LLM's.
inline constexpr std::string_view kEmbeddingTensor = "transformer.vocab_embedding.weight";
inline constexpr std::string_view kHeadTensor = "lm_head.weight";

// The name that the first versions of TensorRT-LLM's converters gave to an embedding table; nullopt for other tensors.
std::optional<std::string> olderName(std::string_view tensor);

// The module of a tensor: "mlp.proj" of "mlp.proj.weight".
std::string_view moduleOf(std::string_view tensor);

// The name of the scales of a quantised weight. grouped: one scale per group of inputs; otherwise one per output.
std::string scaleName(std::string_view weight, bool grouped);
// The weight whose scales a tensor holds; nullopt for a name that scaleName does not make.
struct ScaledWeight {
  std::string name;
  bool grouped = false;
};
std::optional<ScaledWeight> weightOfScales(std::string_view scales);

// True when one of the fnmatch patterns matches the name.
bool matchesAny(std::span<const std::string> patterns, const std::string& name);
// How many names listSome lists.
inline constexpr size_t kListedNames = 8;
// The first few names, comma-separated, followed by the number of the others.
std::string listSome(std::span<const std::string> names);
// The same for `count` names of which only the first ones are given, at least as many as it lists.
std::string listSome(std::span<const std::string> names, size_t count);

}  // namespace chorus
