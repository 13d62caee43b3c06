// A directory of adapters for tests, with an engine that reads their files but does not compute.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_reader.h"
#include "server/model/adapter_directory.h"
#include "server/testing/fakes.h"

namespace chorus::server {

// Fake engine that reads the weights of registered adapters as the real one does: when they are registered, or when
// they are loaded. The weights' text serves as the hash of their content.
class RegisteringEngine : public EngineClient {
 public:
  std::vector<executor::IdType> enqueue(const std::vector<executor::Request>&, Callback) override { return {}; }
  void cancel(executor::IdType) override {}
  void registerAdapter(executor::IdType id, executor::AdapterFiles files) override {
    if (files.path.filename() == broken) fail(ErrorCode::kCorrupt, "{}: broken", files.path.string());
    const auto work = header_bytes.find(files.path.filename().string());
    if (work != header_bytes.end() && files.onWork) files.onWork(work->second);
    if (whileReading) std::exchange(whileReading, nullptr)();
    const auto known = std::make_shared<std::string>();
    if (!files.deferContent) {
      *known = content(files.open());
      files.onContent(*known);
    }
    registered[id] = files.path.filename().string();
    loads[id] = [files, known, this] {
      std::string found;
      try {
        found = content(files.open());
        ++reads;
        if (found.starts_with("NaN")) fail(ErrorCode::kCorrupt, "{}: not finite", files.path.string());
      } catch (const Error& e) {
        if (e.code() == ErrorCode::kNotFound) files.onGone();
        if (e.code() == ErrorCode::kCorrupt && files.deferContent && known->empty()) files.onRefused(e.what());
        throw;
      }
      if (found != *known) files.onContent(found);
      if (known->empty()) *known = found;
    };
    ++registrations;
  }
  // Loads every registered adapter, as a first request to each does.
  void loadAll() {
    const auto now = loads;
    for (const auto& [id, load] : now) load();
  }
  executor::AdapterReport inspectAdapter(const executor::AdapterFiles&) override { return {}; }
  void unregisterAdapter(executor::IdType id) override { registered.erase(id); }
  void loadAdapter(executor::IdType, bool, executor::Executor::AdapterLoadedCallback loaded) override {
    if (loaded) loaded(nullptr);
  }
  void unpinAdapter(executor::IdType) override {}
  void moveAdapterPin(executor::IdType from, executor::IdType to) override { moved_pins.emplace_back(from, to); }
  std::optional<executor::AdapterState> adapterState(executor::IdType) override { return std::nullopt; }
  std::vector<executor::AdapterState> adapterStates() override { return {}; }
  int32_t maxInputLen() const override { return 200; }
  int32_t maxSeqLen() const override { return 256; }
  executor::LiveBatch liveBatch() const override { return {}; }
  int32_t vocabSize() const override { return 258; }

  static std::string content(const std::shared_ptr<const Directory>& directory) {
    return std::string(FileReader(directory).read("adapter_model.safetensors", 1000)->text());
  }

  std::string broken = "none";
  std::map<std::string, size_t> header_bytes;  // of adapters with large headers
  std::function<void()> whileReading;
  std::map<executor::IdType, std::string> registered;
  std::map<executor::IdType, std::function<void()>> loads;  // each does what a loader does
  std::vector<std::pair<executor::IdType, executor::IdType>> moved_pins;
  int registrations = 0;
  int reads = 0;  // how often loads have read the weights
};

class AdapterDirectoryTest : public ::testing::Test {
 protected:
  AdapterDirectoryTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "chorus-adapters-XXXXXX").string();
    root = mkdtemp(pattern.data());
    std::filesystem::create_directories(root / "served");
  }
  ~AdapterDirectoryTest() override { std::filesystem::remove_all(root); }

  std::filesystem::path adapter(const std::string& name, const std::filesystem::path& parent) {
    std::filesystem::create_directories(parent / name);
    std::ofstream(parent / name / "adapter_config.json") << "{}";
    std::ofstream(parent / name / "adapter_model.safetensors") << "weights of " << name;
    return parent / name;
  }
  void write(const std::string& name, const std::string& weights) {
    std::ofstream(root / "served" / name / "adapter_model.safetensors") << weights;
  }
  std::unique_ptr<AdapterDirectory> open(AdapterDirectoryOptions options = {.refresh = AdapterRefresh::kSync}) {
    options.quick_time = quick_time;
    const auto load_text = [this](const Directory& directory, WorkMeter& meter,
                                  bool parse) -> std::shared_ptr<const TextCodec> {
      if (!parse && directory.path().filename() != speaking) return catalog.base().text;
      if (!parse) return own_read ? own : nullptr;
      ++texts_read;
      std::this_thread::sleep_for(reading_time);
      if (while_text_is_read) while_text_is_read();
      if (const auto end = meter.limits().deadline;
          directory.path().filename() == costly && end - WorkMeter::Clock::now() < std::chrono::seconds(10)) {
        std::this_thread::sleep_until(end);
        fail(ErrorCode::kExhausted, "{}: costs too much", directory.path().string());
      }
      if (directory.path().filename() == refusing) fail(refusal, "{}: bad", directory.path().string());
      if (directory.path().filename() != speaking) return catalog.base().text;
      own_read = true;
      return own;
    };
    return std::make_unique<AdapterDirectory>(std::vector<AdapterPlace>{(root / "served").string()}, catalog, engine,
                                              load_text, options);
  }

  std::filesystem::path root;
  std::string speaking = "none";  // the adapter whose text is `own`
  std::string refusing = "none";  // the adapter whose text cannot be read
  std::string costly = "none";    // the adapter whose text is read only within ten seconds or more
  ErrorCode refusal = ErrorCode::kCorrupt;
  std::atomic<int> texts_read = 0;
  bool own_read = false;
  std::chrono::milliseconds reading_time{0};  // of one text
  std::function<void()> while_text_is_read;
  // AdapterDirectoryOptions::quick_time. No adapter counts as slow because the machine is.
  std::chrono::milliseconds quick_time = std::chrono::hours(1);
  std::shared_ptr<const TextCodec> own = std::make_shared<FakeCodec>();
  ModelCatalog catalog{{.name = "base", .fingerprint = "fp", .text = std::make_shared<FakeCodec>()}};
  RegisteringEngine engine;
};

}  // namespace chorus::server
