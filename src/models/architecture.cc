#include "models/architecture.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/config_fields.h"
#include "models/bloom.h"
#include "models/cohere.h"
#include "models/falcon.h"
#include "models/gemma.h"
#include "models/gpt.h"
#include "models/gpt2.h"
#include "models/gpt_bigcode.h"
#include "models/gpt_neox.h"
#include "models/gptj.h"
#include "models/granite.h"
#include "models/granite_moe.h"
#include "models/llama.h"
#include "models/ministral3.h"
#include "models/mixtral.h"
#include "models/multimodal.h"
#include "models/olmo2.h"
#include "models/opt.h"
#include "models/phi3.h"
#include "models/qwen2.h"
#include "models/qwen2_moe.h"
#include "models/qwen3.h"
#include "models/qwen3_moe.h"
#include "models/smollm3.h"
#include "models/starcoder2.h"

namespace chorus {
namespace {

constexpr size_t kShownValue = 100;  // bytes of a value that an error message shows

bool holds(const auto& values, const Json& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

constexpr int64_t kGreatestSize = std::numeric_limits<int32_t>::max();

bool isInRange(FieldRange range, const Json& value) {
  switch (range) {
    case FieldRange::kNone:
      return false;
    case FieldRange::kFactor:
      return value.is_number() && isFactor(value.get<double>());
    case FieldRange::kSize:
      return value.is_number_integer() && value >= 1 && value <= kGreatestSize;
    case FieldRange::kList:
      return value.is_array();
  }
  return false;
}
std::string rangeText(FieldRange range) {
  switch (range) {
    case FieldRange::kNone:
      break;
    case FieldRange::kFactor:
      return fmt::format("a number from {:g} to {:g}", kLeastFactor, kGreatestFactor);
    case FieldRange::kSize:
      return fmt::format("a whole number from 1 to {}", kGreatestSize);
    case FieldRange::kList:
      return "a list";
  }
  return "";
}

void checkField(const ConfigField& field, const Json& value, const Architecture& architecture,
                std::string_view source) {
  const auto own = std::find_if(architecture.fields.begin(), architecture.fields.end(),
                                [&](const FieldValues& entry) { return entry.field == field.name; });
  const std::vector<Json> computed = own == architecture.fields.end() ? std::vector<Json>() : own->values;
  const FieldRange range = own == architecture.fields.end() ? FieldRange::kNone : own->range;
  if (value.is_null() || holds(field.neutral, value) || holds(computed, value)) return;
  if (isInRange(range, value)) return;
  std::string supported;
  const auto list = [&](const Json& item) { supported.append(supported.empty() ? "" : ", ").append(item.dump()); };
  std::for_each(field.neutral.begin(), field.neutral.end(), list);
  std::for_each(computed.begin(), computed.end(), list);
  fail(ErrorCode::kUnsupported, "{}: {} {}{} is not supported by {}; supported: {}", source, field.name,
       printable(value.dump(), kShownValue), value == field.absent ? " (also when the field is absent)" : "",
       architecture.name,
       range != FieldRange::kNone ? rangeText(range)
       : supported.empty()        ? "only a config without it"
                                  : supported);
}
}  // namespace

std::vector<Architecture> builtInArchitectures() {
  std::vector<Architecture> all = {llamaArchitecture(),      mistralArchitecture(),
                                   qwen2Architecture(),      qwen3Architecture(),
                                   gemmaArchitecture(),      gemma2Architecture(),
                                   gemma3Architecture(),     graniteArchitecture(),
                                   gpt2Architecture(),       phi3Architecture(),
                                   falconArchitecture(),     optArchitecture(),
                                   bloomArchitecture(),      mixtralArchitecture(),
                                   qwen2MoeArchitecture(),   qwen3MoeArchitecture(),
                                   olmo2Architecture(),      gptArchitecture(),
                                   cohereArchitecture(),     cohere2Architecture(),
                                   graniteMoeArchitecture(), graniteMoeSharedArchitecture(),
                                   ministral3Architecture(), smollm3Architecture(),
                                   gptBigCodeArchitecture(), gptNeoxArchitecture(),
                                   gptjArchitecture(),       starcoder2Architecture()};
  for (Architecture& model : multimodalArchitectures()) all.push_back(std::move(model));
  return all;
}

const Architecture& findArchitecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : knownArchitectures()) {
    const auto& aliases = architecture.aliases;
    if (architecture.name == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return architecture;
    }
    known += (known.empty() ? "" : ", ") + architecture.name;
  }
  fail(ErrorCode::kUnsupported, "architecture '{}' is not supported; supported are {}", name, known);
}

void checkFields(const ModelConfig& config, const Architecture& architecture, std::string_view source) {
  const Json json = config.toJson();
  const bool sizes_an_embedding = std::ranges::any_of(
      architecture.fields, [](const FieldValues& entry) { return entry.field == "embedding_size"; });
  if (config.embedding_size != config.hidden_size && !sizes_an_embedding) {
    fail(ErrorCode::kUnsupported, "{}: embedding_size {} is not supported by {}; it must be hidden_size, {}", source,
         config.embedding_size, architecture.name, config.hidden_size);
  }
  for (const ConfigField& field : configFields()) {
    if (field.use == FieldUse::kStructural) checkField(field, configValue(json, field.name), architecture, source);
  }
}

const Architecture& architectureOf(const ModelConfig& config, std::string_view source) {
  const Architecture& architecture = findArchitecture(config.architecture);
  checkFields(config, architecture, source);
  return architecture;
}

}  // namespace chorus
