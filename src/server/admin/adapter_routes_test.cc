#include "server/admin/adapter_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/adapter_cache/adapter_error.h"
#include "server/testing/adapter_routes_fixture.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(AdapterRoutesTest, LoadsAndUnloadsInVllmsForm) {
  const auto loaded = load("new", root / "allowed/one");
  EXPECT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(loaded.content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'new' added successfully.");
  EXPECT_EQ(answer("GET", "/v1/models/new").status, 200);
  EXPECT_TRUE(engine.loaded_ids.contains(*models.find("new")->adapter_id)) << "its first request need not wait";

  const auto again = load("new", root / "allowed/one");
  EXPECT_EQ(again.status, 400);
  EXPECT_EQ(Json::parse(again.body)["error"]["type"], "InvalidUserInput");
  EXPECT_EQ(messageOf(again),
            "The lora adapter 'new' has already been loaded. If you want to load the adapter in place, set "
            "'load_inplace' to True.");
  EXPECT_EQ(load("new", root / "served/placed", true).status, 200);

  const auto unloaded = post("/v1/unload_lora_adapter", {{"lora_name", "new"}, {"lora_int_id", 7}});
  EXPECT_EQ(unloaded.status, 200);
  EXPECT_EQ(unloaded.body, "Success: LoRA adapter 'new' removed successfully.");
  EXPECT_EQ(answer("GET", "/v1/models/new").status, 404);
  const auto absent = post("/v1/unload_lora_adapter", {{"lora_name", "new"}});
  EXPECT_EQ(absent.status, 404);
  EXPECT_EQ(messageOf(absent), "The lora adapter 'new' cannot be found.");
}

TEST_F(AdapterRoutesTest, ValuesAreReadBeforeTheAnswerInVllmsForm) {
  const std::string file = root / "allowed/one/adapter_model.safetensors";
  engine.content_error.emplace(ErrorCode::kCorrupt, file + ": not finite");
  for (const bool in_place : {false, true}) {
    const auto refused = load("bad", "one", in_place);
    EXPECT_EQ(refused.status, 400);
    const Json error = Json::parse(refused.body)["error"];
    EXPECT_EQ(error["message"], "The adapter 'bad' cannot be served: adapter_model.safetensors: not finite");
    EXPECT_EQ(error["type"], "InvalidUserInput");
    EXPECT_EQ(error["param"], "lora_path");
    EXPECT_EQ(error["code"], "adapter_refused");
    EXPECT_EQ(answer("GET", "/v1/models/bad").status, 404);
  }
  EXPECT_EQ(post("/adapters", {{"name", "later"}, {"src", "one"}}).status, 200) << "SageMaker's route only registers";
  engine.content_error.reset();
  EXPECT_EQ(load("bad", "one").status, 200);
}

TEST_F(AdapterRoutesTest, RefusesMissingFieldsAndPathsThatAreNotAllowed) {
  EXPECT_EQ(messageOf(post("/v1/load_lora_adapter", {{"lora_name", "x"}})),
            "Both 'lora_name' and 'lora_path' must be provided.");
  EXPECT_EQ(messageOf(post("/v1/unload_lora_adapter", Json::object())),
            "'lora_name' needs to be provided to unload a LoRA adapter.");
  EXPECT_EQ(post("/v1/load_lora_adapter", {{"lora_name", 5}, {"lora_path", "one"}}).status, 400);
  EXPECT_EQ(Json::parse(load("a/b", "one").body)["error"]["param"], "lora_name");
  EXPECT_EQ(Json::parse(post("/adapters", {{"name", ".a"}, {"src", "one"}}).body)["error"]["param"], "name");
  fs::create_directory_symlink(root / "secret/other", root / "allowed/link");
  const std::string outside = root / "secret/other";
  for (const std::string& path : {outside, std::string("../secret/other"), root.string() + "/allowed/../secret/other",
                                  std::string("link"), std::string("/"), std::string("."), outside + "/"}) {
    const auto response = load("x", path);
    EXPECT_EQ(response.status, 400) << path << response.body;
    EXPECT_THAT(response.body, Not(HasSubstr(root.string()))) << path;
  }
  const auto absent = load("x", root / "allowed/absent");
  EXPECT_EQ(absent.status, 404);
  EXPECT_THAT(absent.body, Not(HasSubstr(root.string())));
  for (const std::string& name : {std::string("a/b"), std::string(".hidden"), std::string(300, 'a'),
                                  std::string("line\nbreak"), std::string("base")}) {
    EXPECT_EQ(load(name, "one").status, 400) << name;
  }
  EXPECT_EQ(answer("GET", "/v1/models/x").status, 404);
}

TEST_F(AdapterRoutesTest, SageMakersRoutes) {
  EXPECT_EQ(answer("GET", "/adapters").body, R"({"adapters":[{"name":"placed"},{"name":"shift"}]})");
  EXPECT_EQ(post("/adapters", {{"name", "a b"}, {"src", "one"}, {"preload", true}}).body,
            R"({"status":"Adapter a b registered"})");
  EXPECT_EQ(post("/adapters", {{"name", "a b"}, {"src", "one"}}).status, 400);
  EXPECT_EQ(post("/adapters", {{"name", "c"}, {"src", "one"}, {"pin", true}}).status, 200);
  EXPECT_EQ(engine.pinned, std::set<executor::IdType>{models.find("c")->adapter_id.value()});
  EXPECT_EQ(answer("DELETE", "/adapters/c").status, 200);
  EXPECT_EQ(post("/adapters", {{"name", "c"}}).status, 400);
  EXPECT_EQ(answer("DELETE", "/adapters/a%20b").body, R"({"status":"Adapter a b unregistered"})");
  EXPECT_EQ(answer("DELETE", "/adapters/a%20b").status, 404);
  engine.load_error = std::make_exception_ptr(loadFailed(ErrorCode::kCorrupt, 9, root.string() + "/x: bad"));
  const auto refused = post("/adapters", {{"name", "d"}, {"src", "one"}, {"preload", true}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(messageOf(refused), "The adapter 'd' cannot be served: x: bad");
  const auto method = answer("PUT", "/adapters");
  EXPECT_EQ(method.status, 405);
  EXPECT_THAT(method.headers, ::testing::Contains(::testing::Pair("allow", "GET, HEAD, POST")));
}

TEST_F(AdapterRoutesTest, AreRefusedUnlessEnabled) {
  context->adapters = nullptr;
  const auto refuses = [](const HttpResponse& response) {
    EXPECT_EQ(response.status, 403);
    EXPECT_THAT(response.body, HasSubstr("--enable_admin"));
  };
  refuses(load("x", "one"));
  refuses(post("/v1/unload_lora_adapter", {{"lora_name", "placed"}}));
  refuses(answer("GET", "/adapters"));
  refuses(post("/adapters", {{"name", "x"}, {"src", "one"}}));
  refuses(answer("DELETE", "/adapters/placed"));
  EXPECT_EQ(answer("GET", "/v1/models/placed").status, 200);
}

}  // namespace
}  // namespace chorus::server
