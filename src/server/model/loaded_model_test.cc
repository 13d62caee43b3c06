// The whole path without sockets: the demo model is converted, built, loaded and asked. The answers are compared with
// those of transformers and PEFT.
#include "server/model/loaded_model.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"
#include "base/testing/eventually.h"
#include "server/routes/routes.h"
#include "server/testing/fakes.h"
#include "support/test_paths.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

class LoadedModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (fs::temp_directory_path() / "chorus-served-XXXXXX").string();
    cache = mkdtemp(pattern.data());
    ServeOptions options;
    options.model_directory = (demo() / "base").string();
    options.lora_directories = {(demo() / "adapters").string()};
    options.cache_directory = cache.string();
    options.dtype = "float32";
    options.kv_cache_max_tokens = 32768;
    model = std::make_unique<LoadedModel>(options, locateEngine(options));
    routes = std::make_unique<Routes>();
    routes->serve(model->context());
  }
  static void TearDownTestSuite() {
    model->stop();
    routes.reset();
    model.reset();
    fs::remove_all(cache);
  }

  static fs::path demo() { return test::sourceDir() / "examples" / "demo"; }
  static std::vector<Json> expected(size_t per_model) {
    std::vector<Json> rows;
    std::map<std::string, size_t> counts;
    std::ifstream lines(demo() / "prompts" / "expected_float32.jsonl");
    for (std::string line; std::getline(lines, line);) {
      Json row = Json::parse(line);
      if (row["adapter"].is_null()) row["adapter"] = "base";
      if (counts[row["adapter"]]++ < per_model) rows.push_back(std::move(row));
    }
    return rows;
  }
  static std::shared_ptr<FakeExchange> chat(const Json& row, bool stream) {
    auto exchange = std::make_shared<FakeExchange>();
    const Json body{{"model", row["adapter"]},
                    {"messages", {{{"role", "user"}, {"content", row["prompt"]}}}},
                    {"temperature", 0},
                    {"max_tokens", 64},
                    {"stream", stream}};
    routes->handle({.method = "POST",
                    .path = "/v1/chat/completions",
                    .headers = {{"content-type", "application/json"}},
                    .body = body.dump()},
                   exchange);
    return exchange;
  }

  static inline fs::path cache;
  static inline std::unique_ptr<LoadedModel> model;
  static inline std::unique_ptr<Routes> routes;
};

TEST_F(LoadedModelTest, EveryModelAnswersAsPeftDoes) {
  const auto rows = expected(2);
  ASSERT_GE(rows.size(), 12u) << "the base and five adapters";
  std::vector<std::shared_ptr<FakeExchange>> asked;
  for (const Json& row : rows) asked.push_back(chat(row, false));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json answer = Json::parse(asked[i]->wait().body);
    ASSERT_TRUE(answer.contains("choices")) << answer;
    EXPECT_EQ(answer["choices"][0]["message"]["content"], rows[i]["text"]) << rows[i]["adapter"];
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(answer["usage"]["prompt_tokens"], rows[i]["prompt_ids"].size());
    EXPECT_EQ(answer["usage"]["completion_tokens"], rows[i]["generated_ids"].size());
  }
}

TEST_F(LoadedModelTest, StreamsCarryTheSameText) {
  for (const Json& row : expected(1)) {
    const std::string body = chat(row, true)->wait().body;
    std::string text;
    for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos;) {
      const size_t end = body.find("\n\n", at);
      const Json chunk = Json::parse(body.substr(at + 6, end - at - 6));
      text += chunk["choices"][0]["delta"].value("content", "");
      at = end;
    }
    EXPECT_EQ(text, row["text"].get<std::string>());
  }
}

TEST_F(LoadedModelTest, SummaryNamesModelsAndMemory) {
  const std::string summary = model->summary();
  for (const char* part : {"base", "german", "shout", "weights", "KV cache", "32768 tokens"}) {
    EXPECT_NE(summary.find(part), std::string::npos) << part << " in\n" << summary;
  }
}

TEST_F(LoadedModelTest, AdaptersThatTakeTooLongAtStartAreRegisteredLater) {
  ServeOptions options;
  options.model_directory = (demo() / "base").string();
  options.lora_directories = {(demo() / "adapters").string()};
  options.cache_directory = cache.string();
  options.dtype = "float32";
  options.kv_cache_max_tokens = 1024;
  options.lora_start_time = {};
  LoadedModel early(options, locateEngine(options));
  const ModelCatalog& catalog = early.context()->models;
  EXPECT_TRUE(eventually([&] { return catalog.list().size() == 6; })) << "the base and five adapters";
}

TEST_F(LoadedModelTest, AModelOfAHuggingFaceCacheIsServedByItsNameThere) {
  const fs::path repository = cache / "models--org--base";
  fs::create_directories(repository / "snapshots");
  fs::create_directory_symlink(demo() / "base", repository / "snapshots/0123abcd");
  ServeOptions options;
  options.cache_directory = cache.string();
  options.dtype = "float32";
  options.kv_cache_max_tokens = 1024;
  for (const fs::path& path : {repository, repository / "snapshots/0123abcd"}) {
    options.model_directory = path.string();
    LoadedModel loaded(options, locateEngine(options));
    EXPECT_EQ(loaded.context()->models.base().name, "org/base") << path;
  }
}

TEST_F(LoadedModelTest, SecondStartUsesTheCache) {
  ServeOptions options;
  options.model_directory = (demo() / "base").string();
  options.cache_directory = cache.string();
  options.dtype = "float32";
  const auto before = fs::last_write_time(locateEngine(options).engine_directory / "config.json");
  EXPECT_EQ(fs::last_write_time(locateEngine(options).engine_directory / "config.json"), before);
}

}  // namespace
}  // namespace chorus::server
