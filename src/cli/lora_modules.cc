#include "cli/lora_modules.h"

#include "base/error.h"
#include "base/json.h"

namespace chorus {
namespace {

constexpr const char* kObjectForm = R"(use {"name": NAME, "path": PATH})";

std::string textOf(const Json& object, const char* key) {
  const auto member = object.find(key);
  if (member == object.end()) fail(ErrorCode::kInvalidArgument, "'{}' is missing; {}", key, kObjectForm);
  if (!member->is_string() || member->get_ref<const std::string&>().empty()) {
    fail(ErrorCode::kInvalidArgument, "'{}' must be a text that is not empty; {}", key, kObjectForm);
  }
  return member->get<std::string>();
}

std::string fromObject(const std::string& value) {
  Json object;
  try {
    object = parseJson(value, "JSON", {.max_bytes = size_t{1} << 20, .max_depth = 4, .unique_keys = true});
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidArgument, "{}; {}", error.what(), kObjectForm);
  }
  for (const auto& [key, ignored] : object.items()) {
    // There is one base model, so its name says nothing.
    if (key == "name" || key == "path" || key == "base_model_name") continue;
    fail(ErrorCode::kInvalidArgument, "'{}' is not a key of an adapter; {}", key, kObjectForm);
  }
  const std::string name = textOf(object, "name");
  if (name.find('=') != std::string::npos) {
    fail(ErrorCode::kInvalidArgument, "the name '{}' has an equals sign; choose another", name);
  }
  return name + "=" + textOf(object, "path");
}

}  // namespace

std::string namedAdapterPath(const std::string& value) {
  const size_t begin = value.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && value[begin] == '{') return fromObject(value);
  const size_t equals = value.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == value.size()) {
    fail(ErrorCode::kInvalidArgument, "{} has no name; use NAME=PATH", value);
  }
  return value;
}

}  // namespace chorus
