#include "lora/adapter_config_forms.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

// mlx_lm.lora writes all of its arguments.
struct MlxField {
  std::string_view name;
  std::string_view default_json;
  std::string_view note;  // for docs/adapter_config.md
};
constexpr MlxField kMlxFields[] = {
    {"fine_tune_type", "\"lora\"", "`lora`, `dora`, or `full`: the tensors replace the model's own"},
    {"num_layers", "16", "so many layers at the end are adapted; 0 or less: all"},
    {"lora_layers", "16", "`num_layers` until September 2024"},
    {"use_dora", "false", "`fine_tune_type` `dora` until September 2024"},
    {"lora_parameters.rank", "8", "of every module"},
    {"lora_parameters.scale", "20.0", "the scale itself; it is not divided by the rank"},
    {"lora_parameters.alpha", "null",
     "until May 2024, with `lora_layers` and without `use_dora`, the scale is `scale * alpha / rank`; later ignored"},
    {"lora_parameters.keys", "null", "names of modules, as `target_modules`; null: all"}};
// Training and provenance.
constexpr std::string_view kInertMlxFields[] = {"lora_parameters.dropout",
                                                "model",
                                                "adapter_path",
                                                "adapter_file",
                                                "resume_adapter_file",
                                                "config",
                                                "train",
                                                "data",
                                                "hf_dataset",
                                                "seed",
                                                "optimizer",
                                                "optimizer_config",
                                                "batch_size",
                                                "iters",
                                                "val_batches",
                                                "learning_rate",
                                                "lr_schedule",
                                                "steps_per_report",
                                                "steps_per_eval",
                                                "save_every",
                                                "test",
                                                "test_batches",
                                                "max_seq_length",
                                                "grad_checkpoint",
                                                "grad_accumulation_steps",
                                                "clear_cache_threshold",
                                                "mask_prompt",
                                                "report_to",
                                                "project_name",
                                                "wandb",
                                                "use_chat_template",
                                                "prompt_feature",
                                                "completion_feature",
                                                "trust_remote_code"};

constexpr const char* kParameters = "lora_parameters";

[[noreturn]] void refuseField(std::string_view source, std::string_view field, std::string_view reason) {
  fail(ErrorCode::kInvalidArgument, "{}: '{}' {}", source, field, reason);
}

const Json* fieldOf(const Json& config, const char* field) {
  const auto it = config.find(field);
  return it == config.end() || it->is_null() ? nullptr : &*it;
}

void warnOfUnknown(const Json& config, const Json& parameters, std::string_view source) {
  std::vector<std::string> unknown;
  const auto check = [&](const std::string& name, const Json& value) {
    const bool known = std::ranges::any_of(kMlxFields, [&](const MlxField& field) { return field.name == name; }) ||
                       std::ranges::find(kInertMlxFields, name) != std::end(kInertMlxFields);
    if (!known && !value.is_null() && value != false) unknown.push_back(name);
  };
  for (const auto& [name, value] : config.items()) {
    if (name != kParameters) check(name, value);
  }
  for (const auto& [name, value] : parameters.items()) check(fmt::format("{}.{}", kParameters, name), value);
  if (!unknown.empty()) log::warn("{}: ignoring unknown fields: {}", source, listSome(unknown));
}

double readParameter(const Json& parameters, const char* name, std::string_view source) {
  const Json* value = fieldOf(parameters, name);
  const std::string field = fmt::format("{}.{}", kParameters, name);
  if (value == nullptr || !value->is_number()) refuseField(source, field, "must be a number");
  return value->get<double>();
}

int64_t readLastLayers(const Json& config, std::string_view source) {
  for (const char* field : {"num_layers", "lora_layers"}) {
    const Json* value = fieldOf(config, field);
    if (value == nullptr) continue;
    if (!value->is_number_integer()) refuseField(source, field, "must be a number of layers");
    return std::max<int64_t>(value->get<int64_t>(), 0);
  }
  return 0;
}

MlxConfig fromMlx(Json& config, std::string_view source) {
  MlxConfig mlx;
  const Json* object = fieldOf(config, kParameters);
  const Json parameters = object != nullptr ? *object : Json::object();
  if (!parameters.is_object()) refuseField(source, kParameters, "must be an object");
  warnOfUnknown(config, parameters, source);
  const auto type = jsonGetOr<std::string>(config, "fine_tune_type", "lora", source);
  if (type != "lora" && type != "dora" && type != "full") {
    fail(ErrorCode::kUnsupported, "{}: 'fine_tune_type' {} is not supported; lora, dora and full are", source, type);
  }
  mlx.last_layers = readLastLayers(config, source);
  mlx.replaces_weights = type == "full";
  Json peft = {{"peft_type", "LORA"}, {"use_dora", type == "dora" || jsonGetOr(config, "use_dora", false, source)}};
  if (!mlx.replaces_weights) {
    const Json* rank = fieldOf(parameters, "rank");
    if (rank == nullptr || !rank->is_number_integer() || rank->get<int64_t>() < 1 || rank->get<int64_t>() > INT32_MAX) {
      refuseField(source, "lora_parameters.rank", "must be a whole number of at least 1");
    }
    mlx.scale = readParameter(parameters, "scale", source);
    // The first versions multiplied by alpha / rank. Those that followed wrote alpha for a year, but ignored it.
    if (fieldOf(parameters, "alpha") != nullptr && config.contains("lora_layers") && !config.contains("use_dora")) {
      mlx.scale *= readParameter(parameters, "alpha", source) / rank->get<double>();
    }
    peft["r"] = *rank;
    peft["lora_alpha"] = mlx.scale * rank->get<double>();
    if (const Json* keys = fieldOf(parameters, "keys")) {
      const bool names =
          keys->is_array() && std::ranges::all_of(*keys, [](const Json& key) { return key.is_string(); });
      if (!names) refuseField(source, "lora_parameters.keys", "must be a list of names");
      peft["target_modules"] = *keys;
    }
  }
  config = std::move(peft);
  return mlx;
}
}  // namespace

std::string mlxFieldsMarkdown() {
  std::string text = "| field | default | |\n|---|---|---|\n";
  for (const MlxField& field : kMlxFields) {
    text += fmt::format("| `{}` | `{}` | {} |\n", field.name, field.default_json, field.note);
  }
  text += "\nInert: ";
  for (const std::string_view name : kInertMlxFields) {
    text += fmt::format("{}`{}`", name == kInertMlxFields[0] ? "" : ", ", name);
  }
  return text + ".\n";
}

std::optional<MlxConfig> toPeftConfig(Json& config, std::string_view source) {
  if (!config.contains("peft_type") && (config.contains(kParameters) || config.contains("fine_tune_type"))) {
    return fromMlx(config, source);
  }
  // The DoRA authors' code writes this peft_type. The other fields that matter are LoRA's.
  if (const auto type = config.find("peft_type"); type != config.end() && *type == "DORA") {
    *type = "LORA";
    config["use_dora"] = true;
    for (const char* field : {"dora_simple", "enable_lora", "merge_weights", "Wdecompose_target_modules"}) {
      config.erase(field);
    }
  }
  return std::nullopt;
}

}  // namespace chorus
