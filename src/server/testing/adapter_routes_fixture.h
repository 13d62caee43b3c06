// The routes over a fake engine, with directories of adapters and of uploads, for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "server/testing/routes_fixture.h"

namespace chorus::server {

class AdapterRoutesTest : public RoutesTest {
 protected:
  AdapterRoutesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "chorus-admin-XXXXXX").string();
    root = std::filesystem::canonical(mkdtemp(pattern.data()));
    make(root / "served" / "placed");
    make(root / "allowed" / "one");
    make(root / "secret" / "other");
    const auto load_text = [this](const Directory&, WorkMeter&, bool) { return codec; };
    adapters = std::make_unique<AdapterDirectory>(
        std::vector<AdapterPlace>{(root / "served").string()}, models, engine, load_text,
        AdapterDirectoryOptions{.allowed_roots = {(root / "allowed").string()},
                                .upload_directory = root / "uploads",
                                .upload_bytes = 15'000,
                                .max_adapters = 8});
    adapters->scan();
    context->adapters = adapters.get();
  }
  ~AdapterRoutesTest() override {
    intake.finish();
    adapter_intake.finish();
    list_intake.finish();
    engine.stop();
    std::filesystem::remove_all(root);
  }

  static void make(const std::filesystem::path& directory) {
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "adapter_config.json") << "{}";
    std::ofstream(directory / "adapter_model.safetensors") << "weights";
  }
  HttpResponse post(const std::string& path, const Json& body) { return answer("POST", path, body.dump()); }
  HttpResponse put(const std::string& path, const Json& body) { return answer("PUT", path, body.dump()); }
  HttpResponse load(const std::string& name, const std::string& path, bool in_place = false) {
    return post("/v1/load_lora_adapter", {{"lora_name", name}, {"lora_path", path}, {"load_inplace", in_place}});
  }
  static std::string messageOf(const HttpResponse& response) { return Json::parse(response.body)["error"]["message"]; }

  std::filesystem::path root;
  std::unique_ptr<AdapterDirectory> adapters;
};

}  // namespace chorus::server
