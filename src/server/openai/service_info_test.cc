#include "server/openai/service_info.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/yaml.h"
#include "server/testing/routes_fixture.h"
#include "support/test_paths.h"

namespace chorus::server {
namespace {

class ServiceInfoTest : public RoutesTest {
 protected:
  Json get(const std::string& path) {
    const auto response = answer("GET", path);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.content_type, "application/json");
    return Json::parse(response.body);
  }
};

TEST_F(ServiceInfoTest, TheLicenseIsThatOfTheRepository) {
  const std::string text = readFile(test::sourceDir().string() + "/LICENSE", size_t{1} << 20);
  EXPECT_EQ(get("/v1/license"), (Json{{"name", "LICENSE"},
                                      {"path", "LICENSE"},
                                      // sha1sum LICENSE
                                      {"sha", "2b8b815229aa8a61e483fb4ba0588b8b6c491890"},
                                      {"size", text.size()},
                                      {"url", "https://www.apache.org/licenses/LICENSE-2.0"},
                                      {"type", "file"},
                                      {"content", text}}));
}

TEST_F(ServiceInfoTest, MetadataListsTheModels) {
  Json metadata = get("/v1/metadata");
  EXPECT_EQ(metadata["version"], get("/v1/version")["release"]);
  EXPECT_EQ(get("/version"), (Json{{"version", metadata["version"]}}));
  EXPECT_EQ(metadata["licenseInfo"], get("/v1/license"));
  metadata.erase("version");
  metadata.erase("licenseInfo");
  EXPECT_EQ(
      metadata,
      (Json{{"assetInfo", Json::array()},
            {"modelInfo", {{{"shortName", "base"}, {"modelUrl", ""}}, {{"shortName", "shift"}, {"modelUrl", ""}}}},
            {"repository_override", ""},
            {"selectedModelProfileId", ""}}));
}

TEST_F(ServiceInfoTest, TheManifestIsYaml) {
  models.putAdapter({.name = "a: \"b\"\n- c", .adapter_id = 2, .fingerprint = "fp_2", .created = 8, .text = codec});
  const Json manifest = get("/v1/manifest");
  EXPECT_EQ(manifest["repository_override"], "");
  YamlKeyLines lines;
  const Json yaml = parseYaml(manifest["manifest_file"].get<std::string>(), "manifest", lines);
  EXPECT_EQ(yaml["models"], (Json{{{"name", "base"}, {"fingerprint", "fp_base"}},
                                  {{"name", "a: \"b\"\n- c"}, {"fingerprint", "fp_2"}},
                                  {{"name", "shift"}, {"fingerprint", "fp_adapter"}}}));
}

}  // namespace
}  // namespace chorus::server
