#include "lora/module_choice.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace chorus {
namespace {

constexpr size_t kMaxNames = 4096;

const Json* given(const Json& config, const char* field) {
  const auto it = config.find(field);
  return it == config.end() || it->is_null() ? nullptr : &*it;
}

[[noreturn]] void refuse(std::string_view source, const char* field, std::string_view reason) {
  fail(ErrorCode::kInvalidArgument, "{}: '{}' {}", source, field, reason);
}

std::vector<std::string> readList(const Json& value, const char* field, std::string_view source) {
  if (!value.is_array() || value.size() > kMaxNames) refuse(source, field, "must be a list of names or a pattern");
  std::vector<std::string> names;
  for (const Json& name : value) {
    if (!name.is_string()) refuse(source, field, "must contain only strings");
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::vector<std::string> readListOf(const Json& config, const char* field, std::string_view source) {
  const Json* value = given(config, field);
  return value == nullptr ? std::vector<std::string>() : readList(*value, field, source);
}

ModuleNames readNames(const Json& config, const char* field, std::string_view source,
                      const std::shared_ptr<PatternWork>& work) {
  ModuleNames names;
  const Json* value = given(config, field);
  if (value == nullptr) return names;
  if (value->is_string()) {
    names.pattern = ModulePattern::ofWholeName(value->get<std::string>(), fmt::format("{}: {}", source, field), work);
  } else {
    names.ends = readList(*value, field, source);
  }
  return names;
}

bool isAllLinear(const Json* value) {
  if (value == nullptr || !value->is_string()) return false;
  auto text = value->get<std::string>();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text == "all-linear";
}

std::vector<int64_t> readLayers(const Json& config, std::string_view source) {
  constexpr const char* kField = "layers_to_transform";
  std::vector<int64_t> layers;
  const Json* value = given(config, kField);
  if (value == nullptr) return layers;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& layer : list) {
    if (!layer.is_number_integer()) refuse(source, kField, "must be a layer's number or a list of them");
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

// Returns the last number between two dots of the name for which follows(the name before the first of them) is true.
template <typename Follows>
std::optional<int64_t> lastNumber(std::string_view name, Follows follows) {
  for (size_t end = name.rfind('.'); end != std::string_view::npos && end > 0;) {
    const size_t dot = name.rfind('.', end - 1);
    if (dot == std::string_view::npos) break;
    int64_t number = 0;
    const char *begin = name.data() + dot + 1, *stop = name.data() + end;
    const auto [parsed, error] = std::from_chars(begin, stop, number);
    const bool is_number = error == std::errc() && parsed == stop && *begin != '-';
    if (is_number && follows(name.substr(0, dot))) return number;
    end = dot;
  }
  return std::nullopt;
}

}  // namespace

bool ModuleNames::contain(std::string_view module) const {
  if (pattern) return pattern->matches(module);
  return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) { return isNameOrEnd(module, end); });
}

ModuleChoice ModuleChoice::parse(const Json& config, std::string_view source, std::shared_ptr<PatternWork> work) {
  ModuleChoice choice;
  choice.work_ = work;
  const Json* targets = given(config, "target_modules");
  choice.targets_all_linear_ = isAllLinear(targets);
  choice.targets_any_ = targets == nullptr || choice.targets_all_linear_;
  if (!choice.targets_any_) choice.targets_ = readNames(config, "target_modules", source, work);
  choice.parameters_ = readListOf(config, "target_parameters", source);
  choice.saved_ = readListOf(config, "modules_to_save", source);
  if (std::find(choice.saved_.begin(), choice.saved_.end(), "") != choice.saved_.end()) {
    refuse(source, "modules_to_save", "must not hold an empty name");
  }
  choice.excluded_ = readNames(config, "exclude_modules", source, work);
  choice.layers_ = readLayers(config, source);
  if (const Json* value = given(config, "layers_pattern")) {
    const std::string where = fmt::format("{}: layers_pattern", source);
    const Json list = value->is_string() ? Json::array({*value}) : *value;
    for (const std::string& pattern : readList(list, "layers_pattern", source)) {
      if (!pattern.empty()) choice.layers_patterns_.push_back(ModulePattern::ofNameEnd(pattern, where, work));
    }
  }
  if (choice.targets_.pattern && !choice.layers_.empty()) {
    refuse(source, "layers_to_transform", "cannot be combined with a pattern in 'target_modules'");
  }
  if (!choice.layers_patterns_.empty() && choice.layers_.empty()) {
    refuse(source, "layers_pattern", "needs 'layers_to_transform' as well");
  }
  return choice;
}

void ModuleChoice::charge() const {
  constexpr uint64_t kCompare = 8;
  const size_t names = targets_.ends.size() + excluded_.ends.size() + parameters_.size() + saved_.size();
  if (!work_) return;
  work_->ask();
  work_->charge(kCompare * (1 + names + layers_.size()));
}

bool ModuleChoice::includes(std::string_view module) const {
  charge();
  if (!excluded_.empty() && excluded_.contain(module)) return false;
  if (!targets_any_ && !targets_.contain(module)) return false;
  // A target that is a module's full name is adapted whatever layers_to_transform holds.
  if (std::find(targets_.ends.begin(), targets_.ends.end(), module) != targets_.ends.end()) return true;
  return layers_.empty() || includesLayerOf(module);
}

bool ModuleChoice::includesParameter(std::string_view parameter) const {
  charge();
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const std::string& end) { return isNameOrEnd(parameter, end); });
}

bool ModuleChoice::saves(std::string_view module) const {
  charge();
  if (saves_all_) return true;
  for (size_t end = module.size(); end > 0 && end != std::string_view::npos; end = module.rfind('.', end - 1)) {
    const std::string_view outer = module.substr(0, end);
    if (work_) work_->charge(8 * (1 + saved_.size()));
    for (const std::string& saved : saved_) {
      if (outer.ends_with(saved)) return true;
    }
    if (end == 0) break;
  }
  return false;
}

// Finds the layer number as PEFT's greedy patterns do: the last number between two dots whose preceding name matches
// the first of `layers_patterns_` that matches any; without patterns, one whose preceding name has at least two
// segments.
bool ModuleChoice::includesLayerOf(std::string_view module) const {
  std::optional<int64_t> layer;
  if (layers_patterns_.empty()) {
    layer = lastNumber(module, [](std::string_view before) { return before.find('.') != std::string_view::npos; });
  }
  for (auto pattern = layers_patterns_.begin(); pattern != layers_patterns_.end() && !layer; ++pattern) {
    layer = lastNumber(module, [&](std::string_view before) { return pattern->matches(before); });
  }
  return layer && std::find(layers_.begin(), layers_.end(), *layer) != layers_.end();
}

}  // namespace chorus
