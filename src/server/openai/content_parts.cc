#include "server/openai/content_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace chorus::server {

std::string joinTextParts(const FieldReader& object, std::string_view field, const OrderedJson& parts,
                          const PartRules& rules) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const FieldReader part(parts[i], object.nameOf(fmt::format("{}[{}]", field, i)));
    const std::string type = part.string("type").value_or("");
    if (type.empty()) part.refuse("type", "it is missing");
    if (std::find(rules.types.begin(), rules.types.end(), type) == rules.types.end()) {
      part.refuse("type", fmt::format("only text is supported, not '{}'", type.substr(0, 64)));
    }
    refuseUnservedFields(part, rules.owner);
    const std::string_view member = type == "refusal" ? "refusal" : "text";
    const auto piece = part.string(member);
    if (!piece) part.refuse(member, "it is missing");
    if (i > 0) text += '\n';
    text += *piece;
  }
  return text;
}

std::string textOrParts(const FieldReader& object, std::string_view field, const PartRules& rules) {
  const OrderedJson* content = object.find(field);
  if (content == nullptr) object.refuse(field, "it is missing");
  if (content->is_array()) return joinTextParts(object, field, *content, rules);
  if (!content->is_string()) object.refuseType(field, "a string or an array of parts");
  return content->get<std::string>();
}

}  // namespace chorus::server
