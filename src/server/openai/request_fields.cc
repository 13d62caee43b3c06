#include "server/openai/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "server/errors.h"

namespace chorus::server {
namespace {

bool asksForNothing(const RequestField& field, const OrderedJson& value, const FieldReader& object) {
  const OrderedJson harmless = OrderedJson::parse(field.harmless);
  if (std::find(harmless.begin(), harmless.end(), value) != harmless.end()) return true;
  if (field.disabled_by.empty()) return false;
  const OrderedJson* choice = object.find(field.disabled_by);
  return choice != nullptr && (*choice == "none" || *choice == OrderedJson{{"type", "none"}});
}

[[noreturn]] void refuse(const RequestField& field, const std::string& name) {
  std::string message = field.instead.empty()
                            ? fmt::format("'{}' is not supported with this value; leave it out.", name)
                            : fmt::format("'{}' is not supported: {}.", name, field.instead);
  throw ApiError::invalid(std::move(message), name, "unsupported_parameter");
}

// Applies a row "parent.*": refuses members of the object `parent` that no row names.
void refuseOthers(const RequestField& field, std::string_view parent, const FieldReader& object,
                  std::span<const RequestField> table) {
  constexpr size_t kShownBytes = 64;
  const OrderedJson* inner = object.find(parent);
  if (inner == nullptr || asksForNothing(field, *inner, object)) return;
  if (!inner->is_object()) refuse(field, object.nameOf(parent));
  for (const auto& [member, value] : inner->items()) {
    const std::string path = fmt::format("{}.{}", parent, member);
    const bool named = std::any_of(table.begin(), table.end(), [&](const auto& row) { return row.name == path; });
    if (!named && !value.is_null() && !asksForNothing(field, value, object)) {
      refuse(field, object.nameOf(path.substr(0, kShownBytes)));
    }
  }
}

void refuseIn(const FieldReader& object, std::span<const RequestField> table) {
  for (const RequestField& field : table) {
    if (field.use != FieldUse::kRefused) continue;
    const size_t dot = field.name.find('.');
    const OrderedJson* value = object.find(field.name.substr(0, dot));
    if (value == nullptr) continue;
    if (dot != std::string_view::npos) {
      const std::string_view parent = field.name.substr(0, dot), member = field.name.substr(dot + 1);
      if (member == "*") {
        refuseOthers(field, parent, object, table);
        continue;
      }
      if (!value->is_object()) continue;
      value = FieldReader(*value).find(member);
      if (value == nullptr) continue;
    }
    if (!asksForNothing(field, *value, object)) refuse(field, object.nameOf(field.name));
  }
}

}  // namespace

void refuseUnservedFields(const FieldReader& object, FieldOwner owner) {
  for (const FieldTable* table : requestFields(owner)) refuseIn(object, table->rows);
}

}  // namespace chorus::server
