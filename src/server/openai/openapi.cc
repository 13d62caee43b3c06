#include "server/openai/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "server/errors.h"
#include "server/openai/embedded_files.h"

namespace chorus::server {
namespace {

OrderedJson reference(std::string_view kind, std::string_view name) {
  OrderedJson json = OrderedJson::object();
  json["$ref"] = fmt::format("#/components/{}/{}", kind, name);
  return json;
}

// Adds null to the values that a schema accepts.
OrderedJson orNullValue(OrderedJson schema) {
  if (schema.empty()) return schema;
  if (schema.contains("type") && schema["type"].is_string() && !schema.contains("enum")) {
    schema["type"] = OrderedJson::array({schema["type"], "null"});
    return schema;
  }
  OrderedJson either = OrderedJson::object();
  either["anyOf"] = OrderedJson::array({std::move(schema), OrderedJson{{"type", "null"}}});
  return either;
}

// The values of a refused field that ask for nothing. A field that another one disables accepts any value.
OrderedJson harmlessValues(const RequestField& field) {
  OrderedJson json = OrderedJson::object();
  json["description"] =
      field.instead.empty() ? std::string("Not supported.") : fmt::format("Not supported: {}.", field.instead);
  if (!field.disabled_by.empty()) return json;
  json["enum"] = OrderedJson::parse(field.harmless);
  json["enum"].push_back(nullptr);
  return json;
}

OrderedJson schemaOf(const RequestField& field) {
  switch (field.use) {
    case FieldUse::kServed: {
      OrderedJson schema = OrderedJson::parse(field.schema);
      return field.required ? schema : orNullValue(std::move(schema));
    }
    case FieldUse::kInert:
      return {{"description", "Accepted; it has no effect."}};
    case FieldUse::kRefused:
      break;
  }
  return harmlessValues(field);
}

// The schema of the object in which the members of a row "parent.member" are described.
OrderedJson& parentSchema(OrderedJson& properties, const std::string& parent) {
  OrderedJson& schema = properties[parent];
  if (schema.is_null()) schema["type"] = OrderedJson::array({"object", "null"});
  if (!schema.contains("anyOf")) return schema;
  return schema["anyOf"][0];
}

OrderedJson tableSchema(const FieldTable& table) {
  OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
  for (const RequestField& field : table.rows) {
    const size_t dot = field.name.find('.');
    if (dot == std::string_view::npos) {
      properties[std::string(field.name)] = schemaOf(field);
      if (field.required) required.push_back(field.name);
      continue;
    }
    const std::string parent(field.name.substr(0, dot)), member(field.name.substr(dot + 1));
    if (member != "*") {
      parentSchema(properties, parent)["properties"][member] = schemaOf(field);
      continue;
    }
    // Every member that no row names is refused, and so is the parent if it is not an object.
    OrderedJson inner = std::move(parentSchema(properties, parent));
    inner["additionalProperties"] = schemaOf(field);
    properties[parent] = {{"anyOf", OrderedJson::array({std::move(inner), schemaOf(field)})}};
  }
  OrderedJson schema = OrderedJson::object();
  schema["type"] = "object";
  if (!required.empty()) schema["required"] = std::move(required);
  schema["properties"] = std::move(properties);
  return schema;
}

OrderedJson requestSchema(FieldOwner owner) {
  OrderedJson all = OrderedJson::array();
  for (const FieldTable* table : requestFields(owner)) all.push_back(reference("schemas", table->name));
  if (all.size() == 1) return all.front();
  return {{"allOf", std::move(all)}};
}

OrderedJson content(std::string_view type, OrderedJson schema) {
  OrderedJson json = OrderedJson::object();
  json[std::string(type)] = {{"schema", std::move(schema)}};
  return json;
}

OrderedJson answers(std::string_view method, const DescribedRoute& route) {
  const RouteDescription& about = route.about;
  std::string_view schema = about.answer;
  for (const auto& other : about.method_answers) {
    if (other.method == method) schema = other.answer;
  }
  OrderedJson type =
      content(about.answer_type,
              schema.empty() ? OrderedJson{{"type", about.answer_type == "application/json" ? "object" : "string"}}
                             : reference("schemas", schema));
  OrderedJson answer = {{"description", "The answer."}};
  if (!about.event.empty()) {
    answer["description"] = "The answer; if the request asks for a stream, server-sent events with such data.";
    type["text/event-stream"] = {{"schema", reference("schemas", about.event)}};
  }
  answer["content"] = std::move(type);
  const bool anthropic = errorFormFor(route.path, "").api == ErrorForm::Api::kAnthropic;
  OrderedJson json = OrderedJson::object();
  if (about.answers_early && method == "post") {
    json["202"] = answer;
    json["202"]["description"] = "The work has begun.";
  }
  json["200"] = std::move(answer);
  json["default"] = reference("responses", anthropic ? "AnthropicError" : "Error");
  return json;
}

// The bodies that name or upload an adapter.
OrderedJson adapterContent() {
  const OrderedJson text = {{"type", "string"}}, file = {{"type", "string"}, {"format", "binary"}};
  OrderedJson path = {{"type", "object"}, {"required", {"path"}}};
  path["properties"]["path"] = text;
  OrderedJson form = {{"type", "object"}, {"required", {"config", "weights"}}};
  form["properties"]["config"] = file;
  form["properties"]["weights"] = file;
  OrderedJson json = content("application/json", std::move(path));
  json.update(content("multipart/form-data", std::move(form)));
  json.update(content("application/octet-stream", file));
  return json;
}

std::string operationId(std::string_view method, std::string_view path) {
  std::string id(method);
  for (const char c : path) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) {
      id += c;
    } else if (id.back() != '_') {
      id += '_';
    }
  }
  return id;
}

OrderedJson operation(std::string_view method, const DescribedRoute& route) {
  OrderedJson json = OrderedJson::object();
  json["operationId"] = operationId(method, route.path);
  json["summary"] = route.about.summary;
  if (route.about.request && method != "get") {
    json["requestBody"] = {{"required", true},
                           {"content", content("application/json", requestSchema(*route.about.request))}};
  }
  if (!route.about.body.empty() && method == "post") {
    json["requestBody"] = {{"required", route.about.needs_body},
                           {"content", content("application/json", reference("schemas", route.about.body))}};
  }
  if (route.about.takes_files && (method == "put" || method == "post")) {
    json["requestBody"] = {{"required", true}, {"content", adapterContent()}};
  }
  json["responses"] = answers(method, route);
  return json;
}

OrderedJson pathItem(const DescribedRoute& route) {
  OrderedJson item = OrderedJson::object();
  if (route.path.size() > 1 && (route.path.ends_with('/') || route.path.find('{') != std::string_view::npos)) {
    item["parameters"] =
        OrderedJson::array({{{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  std::string_view rest = route.allow;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    std::string method;
    for (const char c : rest.substr(0, end)) {
      if (c != ' ') method += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    // HEAD is not described: it answers with the head of what GET answers.
    if (method != "head") item[method] = operation(method, route);
    rest = rest.substr(std::min(end + 1, rest.size()));
  }
  return item;
}

OrderedJson errorResponse(std::string_view schema) {
  OrderedJson json = OrderedJson::object();
  json["description"] = "An error. The statuses 408, 409, 429 and 503 are worth another try.";
  json["content"] = content("application/json", reference("schemas", schema));
  return json;
}

}  // namespace

OrderedJson openApiDocument(std::span<const DescribedRoute> routes) {
  OrderedJson paths = OrderedJson::object();
  for (const DescribedRoute& route : routes) {
    const bool named = route.path.size() > 1 && route.path.ends_with('/');
    paths[std::string(route.path) + (named ? "{name}" : "")] = pathItem(route);
  }
  OrderedJson schemas = OrderedJson::parse(kAnswerSchemas);
  for (const FieldTable& table : fieldTables()) schemas[std::string(table.name)] = tableSchema(table);
  OrderedJson components = OrderedJson::object();
  components["schemas"] = std::move(schemas);
  components["responses"] = {{"Error", errorResponse("Error")}, {"AnthropicError", errorResponse("AnthropicError")}};
  components["securitySchemes"] = {{"BearerKey", {{"type", "http"}, {"scheme", "bearer"}}},
                                   {"HeaderKey", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}};
  OrderedJson json = OrderedJson::object();
  json["openapi"] = "3.1.0";
  json["info"] = {{"title", "Chorus"}, {"version", CHORUS_VERSION}};
  // One of the schemes suffices. A key is needed only where the operator asks for keys.
  json["security"] = OrderedJson::array(
      {OrderedJson::object(), {{"BearerKey", OrderedJson::array()}}, {{"HeaderKey", OrderedJson::array()}}});
  json["paths"] = std::move(paths);
  json["components"] = std::move(components);
  return json;
}

}  // namespace chorus::server
