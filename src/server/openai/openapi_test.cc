#include "server/openai/openapi.h"

#include <gtest/gtest.h>

#include <set>

#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

class OpenApiTest : public RoutesTest {
 protected:
  Json document = Json::parse(answer("GET", "/openapi.json").body);
};

// Every "$ref" below `json`.
void collectReferences(const Json& json, std::set<std::string>& out) {
  if (json.is_object() && json.contains("$ref")) out.insert(json["$ref"].get<std::string>());
  for (const Json& inner : json) {
    if (inner.is_structured()) collectReferences(inner, out);
  }
}

TEST_F(OpenApiTest, EveryRouteIsDescribedAndEveryDescribedRouteExists) {
  EXPECT_EQ(document["openapi"], "3.1.0");
  std::set<std::string> paths, ids;
  for (const auto& route : describedRoutes()) {
    const bool named = route.path.size() > 1 && route.path.ends_with('/');
    const std::string path = std::string(route.path) + (named ? "{name}" : "");
    EXPECT_TRUE(paths.insert(path).second) << path << " is in two rows";
    ASSERT_TRUE(document["paths"].contains(path)) << path;
    EXPECT_FALSE(route.about.summary.empty()) << "kRoutes (routes.cc) must describe " << path;
  }
  EXPECT_EQ(document["paths"].size(), paths.size());
  for (const auto& [path, item] : document["paths"].items()) {
    for (const char* method : {"GET", "POST", "PUT", "DELETE", "PATCH"}) {
      std::string lower(method);
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      std::string asked = path;
      if (const size_t name = asked.find("{name}"); name != std::string::npos) asked.replace(name, 6, "base");
      const auto response = answer(method, asked, "{}");
      EXPECT_EQ(response.status != 405 && response.status != 404, item.contains(lower)) << method << " " << path;
      if (item.contains(lower)) {
        EXPECT_TRUE(ids.insert(item[lower]["operationId"].get<std::string>()).second) << path;
      }
    }
  }
}

TEST_F(OpenApiTest, EveryReferenceHasATarget) {
  std::set<std::string> references;
  collectReferences(document, references);
  EXPECT_GT(references.size(), 30u);
  for (const std::string& reference : references) {
    ASSERT_TRUE(reference.starts_with("#/")) << reference;
    EXPECT_TRUE(document.contains(Json::json_pointer(reference.substr(1)))) << reference;
  }
  // A schema that nothing refers to is left over.
  for (const auto& [name, schema] : document["components"]["schemas"].items()) {
    EXPECT_TRUE(references.contains("#/components/schemas/" + name)) << name;
  }
}

TEST_F(OpenApiTest, RequestsHaveTheFieldsOfTheTables) {
  const Json& body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"];
  std::set<std::string> tables;
  for (const Json& part : body["content"]["application/json"]["schema"]["allOf"]) {
    tables.insert(part["$ref"].get<std::string>());
  }
  EXPECT_EQ(tables, (std::set<std::string>{"#/components/schemas/ModelFields", "#/components/schemas/SharedFields",
                                           "#/components/schemas/TemplateFields", "#/components/schemas/OpenAiFields",
                                           "#/components/schemas/ChatFields"}));
  const Json& shared = document["components"]["schemas"]["SharedFields"]["properties"];
  EXPECT_EQ(shared["temperature"], (Json{{"type", {"number", "null"}}, {"minimum", 0}, {"maximum", 2}}));
  EXPECT_EQ(shared["guided_json"]["enum"], Json::array({nullptr}));
  EXPECT_EQ(shared["nvext"]["anyOf"][0]["properties"]["ignore_eos"]["enum"],
            (Json{false, "", Json::array(), Json::object(), nullptr}));
  EXPECT_EQ(document["components"]["schemas"]["ModelFields"]["required"], Json::array({"model"}));
}

}  // namespace
}  // namespace chorus::server
