#include "server/admin/lifecycle_routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "runtime/adapter_cache/adapter_error.h"
#include "server/access/api_keys.h"
#include "server/testing/adapter_routes_fixture.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// A safetensors file with one tensor of four bytes and this metadata.
std::string safetensors(const Json& metadata = Json::object(), const std::string& value = "abcd") {
  Json header = {{"t", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}};
  if (!metadata.empty()) header["__metadata__"] = metadata;
  const std::string text = header.dump();
  std::string file;
  for (size_t i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i));
  return file + text + value;
}

class LifecycleRoutesTest : public AdapterRoutesTest {
 protected:
  static constexpr const char* kPlaced = "/v1/admin/adapters/placed";

  executor::IdType idOf(const std::string& name) { return models.find(name)->adapter_id.value(); }
  HttpResponse upload(const std::string& path, const std::string& body, const std::string& method = "PUT") {
    return answer(method, path, body, {{"content-type", "application/octet-stream"}});
  }
  HttpResponse uploadNew(const std::string& value) {
    return upload("/v1/admin/adapters/new", safetensors({{"adapter_config.json", "{}"}}, value));
  }
  size_t uploads() {
    size_t count = 0;
    for (const auto& own : fs::directory_iterator(root / "uploads")) {
      for ([[maybe_unused]] const auto& one : fs::directory_iterator(own)) ++count;
    }
    return count;
  }
};

TEST_F(LifecycleRoutesTest, ListsAreCharged) {
  for (const char* path : {"/v1/admin/adapters", "/adapters"}) {
    auto charges = fillShare();
    EXPECT_EQ(answer("GET", path).status, 429) << path;
    charges.clear();
    EXPECT_EQ(answer("GET", path).status, 200) << path;
  }
}

TEST_F(LifecycleRoutesTest, ListsWhereEachAdapterIs) {
  const Json list = Json::parse(answer("GET", "/v1/admin/adapters").body);
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["name"], "placed");
  EXPECT_EQ(list["data"][0]["state"], "disk");
  EXPECT_EQ(list["data"][0]["users"], 0);
  EXPECT_EQ(list["data"][0]["pinned"], false);
  EXPECT_TRUE(list["data"][0]["content_hash"].is_null());
  EXPECT_EQ(engine.lists, 1);
  EXPECT_EQ(Json::parse(answer("GET", kPlaced).body), list["data"][0]);
  EXPECT_EQ(engine.lists, 1) << "the state of one adapter must not cost that of all";
  EXPECT_EQ(answer("GET", "/v1/admin/adapters/absent").status, 404);
  EXPECT_EQ(answer("GET", "/v1/admin/adapters/base").status, 404);
}

TEST_F(LifecycleRoutesTest, ServesReplacesAndRemovesByPath) {
  const std::string path = "/v1/admin/adapters/a%20b";
  EXPECT_EQ(put(path, {{"path", "one"}}).body, R"({"name":"a b","status":"added","content_hash":null})");
  EXPECT_EQ(put(path, {{"path", (root / "served/placed").string()}}).body,
            R"({"name":"a b","status":"replaced","content_hash":null})");
  EXPECT_EQ(Json::parse(answer("GET", path).body)["earlier"].size(), 1u);
  const auto back = answer("POST", path + "/rollback");
  EXPECT_EQ(back.status, 200) << back.body;
  EXPECT_EQ(engine.adapters[idOf("a b")], root / "allowed/one");
  EXPECT_EQ(answer("DELETE", path).body, R"({"name":"a b","status":"removed"})");
  EXPECT_EQ(answer("DELETE", path).status, 404);
  for (const char* bad : {"/etc", "../secret/other", ""}) {
    const auto response = put(path, {{"path", bad}});
    EXPECT_EQ(response.status, 400) << bad;
    EXPECT_THAT(response.body, Not(HasSubstr(root.string())));
  }
  EXPECT_EQ(put(path, {{"path", "absent"}}).status, 404);
  EXPECT_EQ(put("/v1/admin/adapters/base", {{"path", "one"}}).status, 400);
  EXPECT_EQ(put("/v1/admin/adapters/a/b", {{"path", "one"}}).status, 400);
}

TEST_F(LifecycleRoutesTest, PinsAndPrefetches) {
  const std::string path = kPlaced;
  EXPECT_EQ(answer("POST", path + "/pin").body, R"({"name":"placed","pinned":true})");
  EXPECT_TRUE(engine.pinned.contains(idOf("placed")));
  EXPECT_EQ(Json::parse(answer("GET", path).body)["pinned"], true);
  EXPECT_EQ(answer("DELETE", path + "/pin").body, R"({"name":"placed","pinned":false})");
  EXPECT_TRUE(engine.pinned.empty());
  EXPECT_EQ(answer("POST", path + "/prefetch").body, R"({"name":"placed","status":"loaded"})");
  const auto later = answer("POST", path + "/prefetch", R"({"wait": false})");
  EXPECT_EQ(later.status, 202);
  EXPECT_EQ(later.body, R"({"name":"placed","status":"loading"})");
  EXPECT_EQ(answer("POST", path + "/prefetch", R"({"wait": 3})").status, 400);
  EXPECT_EQ(answer("POST", "/v1/admin/adapters/absent/pin").status, 404);
  EXPECT_EQ(answer("GET", path + "/pin").status, 405);
  EXPECT_EQ(answer("POST", path + "/unknown").status, 405) << "a path of the adapter's own route";
  const auto fails = [&](ErrorCode code, int status, const std::string& text) {
    engine.load_error = std::make_exception_ptr(Error(code, "/srv/secret/x: " + text));
    const auto response = answer("POST", path + "/pin");
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_THAT(response.body, Not(HasSubstr("/srv/secret")));
  };
  fails(ErrorCode::kBusy, 429, "full");
  fails(ErrorCode::kInvalidArgument, 400, "too many pins");
  fails(ErrorCode::kCorrupt, 400, "not finite");
  fails(ErrorCode::kNotFound, 404, "gone");
  fails(ErrorCode::kTooLarge, 400, "too large");
  engine.load_error = std::make_exception_ptr(loadFailed(ErrorCode::kCorrupt, 7, "/srv/secret/a.bin: not finite"));
  const auto refused = answer("POST", path + "/prefetch");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(messageOf(refused), "The adapter 'placed' cannot be served: a.bin: not finite");
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "adapter_refused");
  engine.load_error = std::make_exception_ptr(loadFailed(ErrorCode::kConflict, 7, "its files keep changing"));
  EXPECT_EQ(messageOf(answer("POST", path + "/prefetch")), "its files keep changing");
}

TEST_F(LifecycleRoutesTest, APinOfANameThatGetsAnotherAdapterPinsThatOne) {
  const std::string path = kPlaced;
  const executor::IdType old = idOf("placed");
  auto replaced = std::make_exception_ptr(Error(ErrorCode::kConflict, "replaced by one with another tokenizer"));
  engine.on_load = [&](executor::IdType id) -> std::exception_ptr {
    if (id != old) return nullptr;
    ServedModel model = *models.find("placed");
    model.adapter_id = old + 100;
    models.putAdapter(model);
    return replaced;
  };
  EXPECT_EQ(answer("POST", path + "/pin").body, R"({"name":"placed","pinned":true})");
  EXPECT_EQ(engine.pinned, std::set<executor::IdType>{old + 100});
  // A conflict without another adapter is an answer.
  engine.on_load = [&](executor::IdType) { return replaced; };
  EXPECT_EQ(answer("POST", path + "/pin").status, 409);
}

TEST_F(LifecycleRoutesTest, UploadsAreServed) {
  const auto added = uploadNew("aaaa");
  EXPECT_EQ(added.status, 200) << added.body;
  EXPECT_EQ(Json::parse(added.body)["status"], "added");
  EXPECT_EQ(Json::parse(answer("GET", "/v1/admin/adapters/new").body)["uploaded"], true);
  EXPECT_EQ(answer("GET", "/v1/models/new").status, 200);

  const std::string weights = safetensors({}, "bbbb");
  const std::string form =
      "--xyz\r\nContent-Disposition: form-data; name=\"config\"; filename=\"adapter_config.json\"\r\n"
      "Content-Type: application/json\r\n\r\n{}\r\n--xyz\r\n"
      "Content-Disposition: form-data; name=\"weights\"; filename=\"adapter_model.safetensors\"\r\n"
      "\r\n" +
      weights + "\r\n--xyz--\r\n";
  const HttpHeaders headers = {{"content-type", "multipart/form-data; boundary=xyz"}};
  const auto replaced = answer("PUT", "/v1/admin/adapters/new", form, headers);
  EXPECT_EQ(Json::parse(replaced.body)["status"], "replaced") << replaced.body;
  EXPECT_EQ(uploads(), 2u) << "the earlier one is kept";
  EXPECT_EQ(answer("POST", "/v1/admin/adapters/new/rollback").status, 200);
  EXPECT_EQ(answer("DELETE", "/v1/admin/adapters/new").status, 200);
  engine.adapters.clear();
  EXPECT_EQ(uploads(), 0u) << "nothing of a removed adapter is left";
}

TEST_F(LifecycleRoutesTest, UploadsMakeRoomForEachOther) {
  const std::string config = "{" + std::string(3000, ' ') + "}";
  const auto send = [&](const std::string& name, const std::string& value) {
    return upload("/v1/admin/adapters/" + name, safetensors({{"adapter_config.json", config}}, value));
  };
  const auto earlierOfA = [&] { return Json::parse(answer("GET", "/v1/admin/adapters/a").body)["earlier"].size(); };
  // Each upload takes 6 KB of 15, because the header has the configuration too.
  EXPECT_EQ(send("a", "aaaa").status, 200);
  EXPECT_EQ(send("a", "AAAA").status, 200);
  EXPECT_EQ(earlierOfA(), 1u);
  EXPECT_EQ(send("c", "cccc").status, 200);
  EXPECT_EQ(earlierOfA(), 0u) << "an earlier content makes room";
  const auto full = send("b", "bbbb");
  EXPECT_EQ(full.status, 507);
  EXPECT_THAT(full.body, HasSubstr("--lora_upload_space"));
  EXPECT_EQ(answer("GET", "/v1/models/b").status, 404);
  EXPECT_EQ(answer("GET", "/v1/models/a").status, 200);
  EXPECT_EQ(uploads(), 2u);
  EXPECT_EQ(uploadNew("cccc").status, 200);
  EXPECT_EQ(uploadNew("dddd").status, 200);
  EXPECT_EQ(Json::parse(answer("GET", "/v1/admin/adapters/new").body)["earlier"].size(), 1u);
}

TEST_F(LifecycleRoutesTest, NamesAreLimited) {
  // "placed" is one of the eight.
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) {
    EXPECT_EQ(put("/v1/admin/adapters/" + std::string(name), {{"path", "one"}}).status, 200);
  }
  const auto refused = [&](const HttpResponse& response) {
    EXPECT_EQ(response.status, 507) << response.body;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "too_many_adapters");
    EXPECT_EQ(
        error["message"],
        "The adapter 'new' cannot be added: this server keeps at most 8 adapters; remove one that is not needed.");
    EXPECT_EQ(answer("GET", "/v1/models/new").status, 404);
  };
  refused(put("/v1/admin/adapters/new", {{"path", "one"}}));
  refused(uploadNew("abcd"));
  refused(load("new", "one"));
  refused(post("/adapters", {{"name", "new"}, {"src", "one"}}));
  EXPECT_EQ(uploads(), 0u);
  EXPECT_EQ(put("/v1/admin/adapters/a", {{"path", "one"}}).status, 200) << "it is no new name";
  EXPECT_EQ(answer("DELETE", "/v1/admin/adapters/a").status, 200);
  EXPECT_EQ(uploadNew("abcd").status, 200);
  EXPECT_EQ(put("/v1/admin/adapters/a", {{"path", "one"}}).status, 507);
}

TEST_F(LifecycleRoutesTest, BadUploadsAreOneError) {
  const std::string path = "/v1/admin/adapters/new";
  EXPECT_THAT(upload(path, "not a file").body, HasSubstr("no valid safetensors file"));
  EXPECT_THAT(upload(path, safetensors()).body, HasSubstr("no 'adapter_config.json' in its __metadata__"));
  const auto form = [&](const std::string& body, const std::string& type = "multipart/form-data; boundary=x") {
    const auto response = answer("PUT", path, body, {{"content-type", type}});
    EXPECT_EQ(response.status, 400) << response.body;
    return messageOf(response);
  };
  EXPECT_THAT(form("--x--\r\n"), HasSubstr("no part 'config'"));
  EXPECT_THAT(form("x", "multipart/form-data"), HasSubstr("no valid boundary"));
  EXPECT_THAT(form("--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n1\r\n--x--"), HasSubstr("is neither"));
  EXPECT_EQ(answer("PUT", path, "{}", {{"content-type", "text/plain"}}).status, 415);
  EXPECT_EQ(answer("POST", "/v1/completions", "{}", {{"content-type", "application/octet-stream"}}).status, 415);
  EXPECT_EQ(uploads(), 0u);
  EXPECT_EQ(answer("GET", "/v1/models/new").status, 404);
}

TEST_F(LifecycleRoutesTest, ValidatesWithoutServing) {
  const auto uploaded = upload("/v1/admin/validate", safetensors({{"adapter_config.json", "{}"}}), "POST");
  EXPECT_EQ(uploaded.status, 200) << uploaded.body;
  const Json report = Json::parse(uploaded.body);
  EXPECT_EQ(report["accepted"], true);
  EXPECT_EQ(report["rank"], 8);
  EXPECT_EQ(report["host_bytes"], 5);
  EXPECT_EQ(report["tensors"][0]["name"], "adapter_config.json");
  EXPECT_EQ(Json::parse(post("/v1/admin/validate", {{"path", "one"}}).body)["tensors"].size(), 2u);
  EXPECT_EQ(post("/v1/admin/validate", {{"path", "/etc"}}).status, 400);
  EXPECT_EQ(post("/v1/admin/validate", {{"path", "absent"}}).status, 404);
  EXPECT_EQ(post("/v1/admin/validate", Json::object()).status, 400);
  EXPECT_EQ(uploads(), 0u);
  EXPECT_EQ(models.list().size(), 3u);
}

TEST_F(LifecycleRoutesTest, ReadingAnAdapterHoldsUpNoRequestForText) {
  std::promise<void> gate;
  engine.while_inspecting = [read = gate.get_future().share()](const executor::AdapterFiles&) { read.wait(); };
  const auto checked = send("POST", "/v1/admin/validate", R"({"path":"one"})");
  const auto loaded = send("POST", "/v1/load_lora_adapter", R"({"lora_name":"two","lora_path":"one"})");
  completion(R"("prompt":"x")");
  EXPECT_EQ(answer("GET", kPlaced).status, 200);
  gate.set_value();
  EXPECT_EQ(checked->wait().status, 200);
  EXPECT_EQ(loaded->wait().status, 200);
}

TEST_F(LifecycleRoutesTest, ReadingAnAdapterEndsInTime) {
  engine.while_inspecting = [](const executor::AdapterFiles& files) {
    while (true) files.onWork(1);
  };
  Intake late{IntakeOptions{.threads = 1, .timeout = std::chrono::milliseconds(5)}};
  auto limited = std::make_shared<ApiContext>(ApiContext{engine, models, intake, late, list_intake, delivery, {}, {}});
  limited->adapters = adapters.get();
  routes.serve(limited);
  const HttpResponse slow = post("/v1/admin/validate", {{"path", "one"}});
  EXPECT_EQ(slow.status, 504);
  EXPECT_EQ(messageOf(slow), "Reading the adapter exceeded the server's time limit.");

  Intake endless{
      {.threads = 1, .timeout = 10 * kPatience, .work_limit = UINT64_MAX, .work_at_first = uint64_t{1} << 60}};
  auto patient =
      std::make_shared<ApiContext>(ApiContext{engine, models, intake, endless, list_intake, delivery, {}, {}});
  patient->adapters = adapters.get();
  routes.serve(patient);
  const auto stopped = send("POST", "/v1/admin/validate", R"({"path":"one"})");
  endless.cancelAll();
  EXPECT_EQ(stopped->wait().status, 503);
  routes.serve(context);
}

TEST_F(LifecycleRoutesTest, OnlyUploadsThatAreAllowedMayBeLarge) {
  context->max_upload_bytes = 5000;
  const auto limit = [&](const std::string& path, const std::string& type, const std::string& key = "") {
    HttpRequest head;
    head.method = "PUT";
    head.path = path;
    head.headers = {{"content-type", type}};
    if (!key.empty()) head.headers.emplace_back("authorization", "Bearer " + key);
    return routes.bodyLimit(head, 100);
  };
  const std::string path = "/v1/admin/adapters/new", binary = "application/octet-stream";
  EXPECT_EQ(limit(path, binary), 5000u);
  EXPECT_EQ(limit("/v1/admin/validate", "multipart/form-data; boundary=x"), 5000u);
  EXPECT_EQ(limit(path, "application/json"), 100u);
  EXPECT_EQ(limit("/v1/completions", binary), 100u);
  EXPECT_EQ(limit(path + "/pin", binary), 100u);
  routes.requireKeys(std::make_shared<const ApiKeys>(ApiKeys::single("a-long-enough-secret")), nullptr);
  EXPECT_EQ(limit(path, binary), 100u);
  EXPECT_EQ(limit(path, binary, "another-long-secret"), 100u);
  EXPECT_EQ(limit(path, binary, "a-long-enough-secret"), 5000u);
  context->adapters = nullptr;
  EXPECT_EQ(limit(path, binary, "a-long-enough-secret"), 100u);
}

TEST_F(LifecycleRoutesTest, AreRefusedUnlessEnabled) {
  context->adapters = nullptr;
  for (const auto& [method, path] :
       {std::pair("GET", "/v1/admin/adapters"), std::pair("GET", kPlaced), std::pair("DELETE", kPlaced),
        std::pair("POST", "/v1/admin/adapters/placed/pin"), std::pair("POST", "/v1/admin/adapters/placed/prefetch"),
        std::pair("POST", "/v1/admin/adapters/placed/rollback"), std::pair("POST", "/v1/admin/validate")}) {
    const auto response = answer(method, path);
    EXPECT_EQ(response.status, 403) << path;
    EXPECT_THAT(response.body, HasSubstr("--enable_admin"));
  }
}

}  // namespace
}  // namespace chorus::server
