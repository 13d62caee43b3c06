#include "models/text_model.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/printable.h"
#include "models/source_config.h"

namespace chorus {
namespace {

constexpr const char* kTextConfig = "text_config";
constexpr const char* kTieKey = "tie_word_embeddings";
// The field of a checkpoint that names the text model's architecture.
constexpr const char* kTextArchitecture = "text_architecture";
constexpr size_t kShownOfText = 100;  // bytes

bool hasValue(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && !found->is_null();
}

// The text model's part of a source config, and where it is.
struct TextConfig {
  Json json;
  std::string source;
};

TextConfig textConfig(const Json& json, std::string_view source, const MultimodalModel& model) {
  if (!hasValue(json, kTextConfig)) {
    if (!model.may_be_flat) fail(ErrorCode::kInvalidArgument, "{}: '{}' is missing", source, kTextConfig);
    Json text = json;
    text.erase("model_type");
    return {std::move(text), std::string(source)};
  }
  const Json& text = json[kTextConfig];
  if (!text.is_object()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be an object", source, kTextConfig);
  // Some versions of transformers repeat the text model's keys at the top level, where they have no effect.
  Json others = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (key != kTextConfig && (key == "quantization_config" || !text.contains(key))) others[key] = value;
  }
  checkSourceKeys(others, {.used = {kTieKey}, .inert = model.other_keys, .only_at_default = {}}, source);
  return {text, fmt::format("{}: {}", source, kTextConfig)};
}

// The size of half a head that the sections divide, and 0 without sections. Removes the keys of the sections from the
// RoPE parameters of the text model.
int64_t takeRopeSections(TextConfig& text) {
  const auto parameters = text.json.find(hasValue(text.json, "rope_parameters") ? "rope_parameters" : "rope_scaling");
  if (parameters == text.json.end() || !parameters->is_object()) return 0;
  Json& rope = *parameters;
  for (const char* key : {"type", "rope_type"}) {
    if (rope.value(key, Json()) == "mrope") rope[key] = "default";
  }
  rope.erase("mrope_interleaved");
  const Json sections = rope.value("mrope_section", Json());
  rope.erase("mrope_section");
  if (sections.is_null()) return 0;
  int64_t total = 0;
  bool valid = sections.is_array() && sections.size() == 3;
  for (const Json& section : sections) {
    valid = valid && section.is_number_integer() && section >= 0 && section <= INT32_MAX;
    if (valid) total += section.get<int64_t>();
  }
  if (!valid) {
    fail(ErrorCode::kInvalidArgument, "{}: 'mrope_section' must be a list of three sizes, not {}", text.source,
         printable(sections.dump(), kShownOfText));
  }
  return total;
}

void checkRopeSections(int64_t total, const ModelConfig& config, std::string_view source) {
  if (total == 0 || 2 * total == config.rotary_embedding_dim) return;
  fail(ErrorCode::kUnsupported, "{}: 'mrope_section' has {} elements in all, but half a head has {}", source, total,
       config.rotary_embedding_dim / 2);
}

const Architecture& architectureFor(const TextConfig& text, const MultimodalModel& model) {
  const auto type = jsonGetOr<std::string>(text.json, "model_type", "", text.source);
  if (type.empty()) return model.texts.front().second;
  std::string known;
  for (const auto& [name, architecture] : model.texts) {
    if (name == type) return architecture;
    known += (known.empty() ? "" : ", ") + name;
  }
  fail(ErrorCode::kUnsupported, "{}: model_type '{}' is not supported in {}; supported: {}", text.source,
       printable(type, kShownOfText), model.name, known);
}

ModelConfig readTextConfig(const Json& json, std::string_view source, const MultimodalModel& model) {
  TextConfig text = textConfig(json, source, model);
  for (const std::string_view key : model.other_keys) text.json.erase(std::string(key));
  text.json = withDefaults(text.json, model.text_defaults);
  if (hasValue(json, kTieKey)) {
    const bool in_text = model.ties_in_text && jsonGetOr(text.json, kTieKey, false, text.source);
    text.json[kTieKey] = in_text || jsonGet<bool>(json, kTieKey, source);
  }
  const int64_t sections = model.has_rope_sections ? takeRopeSections(text) : 0;
  const Architecture& architecture = architectureFor(text, model);
  ModelConfig config = architecture.configFromHuggingFace(text.json, text.source);
  checkRopeSections(sections, config, text.source);
  config.architecture = model.name;
  config.extra[kTextArchitecture] = architecture.name;
  return config;
}

// The config of the text model in a checkpoint, and its architecture. Throws what architectureOf() throws.
struct TextModel {
  ModelConfig config;
  const Architecture* architecture = nullptr;
};
TextModel textModel(const ModelConfig& config, const MultimodalModel& model) {
  TextModel text = {.config = config, .architecture = &model.texts.front().second};
  const auto name = jsonGetOr<std::string>(config.extra, kTextArchitecture, text.architecture->name, "config.json");
  for (const auto& [type, architecture] : model.texts) {
    if (architecture.name == name) text.architecture = &architecture;
  }
  text.config.architecture = text.architecture->name;
  text.config.extra.erase(kTextArchitecture);
  checkFields(text.config, *text.architecture, "config.json");
  return text;
}

// The fields and values that any of the text models supports; textModel() checks those of the right one.
std::vector<FieldValues> fieldsOfTexts(const MultimodalModel& model) {
  std::vector<FieldValues> fields;
  FieldValues names = {.field = kTextArchitecture};
  for (const auto& [type, architecture] : model.texts) {
    names.values.emplace_back(architecture.name);
    for (const FieldValues& field : architecture.fields) {
      const auto same = std::ranges::find(fields, field.field, &FieldValues::field);
      if (same == fields.end()) {
        fields.push_back(field);
        continue;
      }
      for (const Json& value : field.values) {
        if (std::ranges::find(same->values, value) == same->values.end()) same->values.push_back(value);
      }
      if (same->range == FieldRange::kNone) same->range = field.range;
    }
  }
  fields.push_back(std::move(names));
  return fields;
}
}  // namespace

Architecture textModelOf(MultimodalModel model) {
  const auto shared = std::make_shared<const MultimodalModel>(std::move(model));
  Architecture architecture = {
      .name = shared->name,
      .configFromHuggingFace = [shared](const Json& json,
                                        std::string_view source) { return readTextConfig(json, source, *shared); },
      .weightTable =
          [shared](const ModelConfig& config) {
            const TextModel text = textModel(config, *shared);
            return withNamings(text.architecture->weightTable(text.config), shared->namings);
          },
      .modelSpec =
          [shared](const ModelConfig& config) {
            const TextModel text = textModel(config, *shared);
            return text.architecture->modelSpec(text.config);
          },
      .ignored_sources = {},
      .fields = fieldsOfTexts(*shared),
      .models = shared->models,
      .structure = "the text model only: "};
  for (const auto& [type, text] : shared->texts) {
    architecture.structure += (&text == &shared->texts.front().second ? "" : " or ") + text.name;
    for (const std::string& pattern : text.ignored_sources) {
      for (const Naming& naming : shared->namings) architecture.ignored_sources.push_back(renamed(pattern, naming));
    }
  }
  for (const std::string& part : shared->other_parts) {
    for (const char* own : {"", "model."}) architecture.left_out.push_back(own + part + ".*");
  }
  return architecture;
}

}  // namespace chorus
