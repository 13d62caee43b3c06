// Loading a large adapter runs in slices of at most a millisecond, and survives any change of its files meanwhile.
#include "runtime/engine_adapters.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <limits>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "base/testing/eventually.h"
#include "convert/convert_model.h"
#include "engine/build.h"
#include "formats/safetensors.h"
#include "formats/testing/torch_test_file.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = test::sourceDir() / "tests/goldens/llama/plain";

// A fake clock on which one byte takes one nanosecond; records the slices between the throttle's rests.
struct Recorder {
  ThrottleClock::Duration time{0}, begin{0};
  std::vector<ThrottleClock::Duration> slices;
  size_t bytes = 0;

  ThrottleClock clock() {
    return {[this](size_t worked) {
              bytes += worked;
              return time += ThrottleClock::Duration(static_cast<int64_t>(worked));
            },
            [this](ThrottleClock::Duration) {
              slices.push_back(time - begin);
              begin = time;
            },
            [] { return true; }};
  }
  ThrottleClock::Duration longest() const { return *std::max_element(slices.begin(), slices.end()); }
};

class EngineAdaptersTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRank = 1024;

  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "chorus_engine_adapters_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    convertModel(kModel, directory_ / "checkpoint", {.dtype = DType::kFloat32, .workers = 1});
    BuildConfig config;
    config.max_batch_size = 4;
    config.lora_plugin = config.dora_plugin = true;
    config.max_lora_rank = kRank;
    buildEngine(directory_ / "checkpoint", directory_ / "engine", config, 1);
    ranks_ = new RankGroup(RankGroup::loadEngines(directory_ / "engine"), {.threads = 1},
                           {.max_batch_size = 4, .max_num_tokens = 64, .tokens_per_block = 16, .kv_blocks = 8});
    writeAdapter(directory_ / "large", 1.0f);
  }
  static void TearDownTestSuite() {
    delete ranks_;
    fs::remove_all(directory_);
  }

  static const ModelConfig& model() { return ranks_->engine().config(); }

  static uint64_t writeAdapter(const fs::path& dir, float value) {
    fs::create_directories(dir);
    std::ofstream(dir / "adapter_config.json") << Json{{"peft_type", "LORA"},
                                                       {"r", kRank},
                                                       {"lora_alpha", 16},
                                                       {"target_modules", {"gate_proj", "up_proj", "down_proj"}}};
    std::vector<SafetensorsWriter::Declaration> tensors;
    for (int32_t layer = 0; layer < model().num_hidden_layers; ++layer) {
      for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
        const bool down = name == "down_proj";
        const int64_t in = down ? model().intermediate_size : model().hidden_size;
        const int64_t out = down ? model().hidden_size : model().intermediate_size;
        const std::string module = fmt::format("base_model.model.model.layers.{}.mlp.{}", layer, name);
        tensors.push_back({module + ".lora_A.weight", DType::kFloat32, {kRank, in}});
        tensors.push_back({module + ".lora_B.weight", DType::kFloat32, {out, kRank}});
      }
    }
    SafetensorsWriter writer(dir / "adapter_model.safetensors", tensors);
    for (const auto& tensor : tensors) {
      int64_t count = 1;
      for (const int64_t extent : tensor.shape) count *= extent;
      const std::vector<float> values(static_cast<size_t>(count), value);
      writer.write(tensor.name, 0, std::as_bytes(std::span(values)));
    }
    writer.finish();
    return fs::file_size(dir / "adapter_model.safetensors");
  }

  // Retries like the adapter loader while the directory was rewritten just now.
  static std::shared_ptr<const PreparedAdapter> loadQuiet(const EngineAdapters& adapters, const AdapterSource& source) {
    for (;;) {
      try {
        return adapters.load(source);
      } catch (const AdapterUnsettled& unsettled) {
        std::this_thread::sleep_for(unsettled.wait);
      }
    }
  }

  static inline fs::path directory_;
  static inline RankGroup* ranks_ = nullptr;
};

TEST_F(EngineAdaptersTest, NoSliceOfALargeAdapterIsLong) {
  const uint64_t bytes = fs::file_size(directory_ / "large" / "adapter_model.safetensors");
  ASSERT_GT(bytes, uint64_t{4} << 20);
  Recorder registering, loading;
  Recorder* recorder = &registering;
  const EngineAdapters adapters(*ranks_, [&] { return recorder->clock(); });
  const auto source = adapters.fileSource(directory_ / "large");
  recorder = &loading;
  const auto parts = adapters.load(*source);
  EXPECT_EQ(parts->content_hash, source->content_hash);
  EXPECT_EQ(static_cast<int64_t>(parts->bytes), source->bytes);
  EXPECT_EQ(parts->elements, source->elements);
  EXPECT_EQ(source->elements,
            model().num_hidden_layers * 3 * kRank * (model().hidden_size + model().intermediate_size));
  // Registering reads, checks and hashes the file; loading reads, checks and packs it.
  EXPECT_GT(registering.bytes, 5 * bytes / 2);
  EXPECT_GT(loading.bytes, 5 * bytes / 2);
  EXPECT_GT(loading.slices.size(), 2u);
  // The rest of a file makes one piece a little longer than expected.
  constexpr auto kMost = BackgroundThrottle::kSlice + BackgroundThrottle::kSlice / 100;
  EXPECT_LE(registering.longest(), kMost);
  EXPECT_LE(loading.longest(), kMost);
}

// Bytes that this process has read with read().
uint64_t bytesRead() {
  std::ifstream io("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (io >> key >> value) {
    if (key == "rchar:") return value;
  }
  return 0;
}

// Copies an adapter; its weights become a file of torch.save. other_bytes: of an entry that no tensor uses.
void writeAsTorchFile(const fs::path& from, const fs::path& to, size_t other_bytes = 0) {
  fs::create_directories(to);
  fs::copy_file(from / "adapter_config.json", to / "adapter_config.json");
  const Safetensors file = Safetensors::open(from / "adapter_model.safetensors");
  TestZip zip;
  std::vector<std::pair<std::string, std::string>> tensors;
  for (const std::string& name : file.names()) {
    const TensorView& view = *file.find(name);
    const std::string key = std::to_string(zip.entries.size());
    const auto storage = pickled::storage(pickled::global("torch", "FloatStorage"), key, view.elements());
    const auto rows = static_cast<int32_t>(view.shape[0]), columns = static_cast<int32_t>(view.shape[1]);
    tensors.emplace_back(name, pickled::tensor(storage, 0, {rows, columns}, {columns, 1}));
    zip.entries.push_back({"a/data/" + key, {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()}});
  }
  zip.entries.push_back({"a/data.pkl", pickled::whole(pickled::dict(tensors))});
  zip.entries.push_back({"a/version", "3\n"});
  zip.entries.push_back({"a/other", std::string(other_bytes, '\0')});
  std::ofstream(to / "adapter_model.bin") << zip.build();
}

class DeferredRegistrationTest : public EngineAdaptersTest, public testing::WithParamInterface<const char*> {};

TEST_P(DeferredRegistrationTest, ReadsOnlyTheConfigurationAndTheHeader) {
  const fs::path weights = GetParam();
  fs::path dir = directory_ / "large";
  if (weights.extension() == ".bin") {
    dir = directory_ / "torch";
    writeAsTorchFile(directory_ / "large", dir);
  }
  const uint64_t bytes = fs::file_size(dir / weights);
  Recorder recorder;
  const EngineAdapters adapters(*ranks_, [&] { return recorder.clock(); });
  std::vector<std::string> told, refused;
  const auto deferred = [&] {
    return adapters.fileSource({.path = dir,
                                .open = openerOf(dir),
                                .onContent = [&](const std::string& hash) { told.push_back(hash); },
                                .onGone = nullptr,
                                .deferContent = true,
                                .onRefused = [&](const std::string& reason) { refused.push_back(reason); }});
  };
  const uint64_t before = bytesRead();
  const auto source = deferred();
  EXPECT_LT(bytesRead() - before, bytes / 16);
  EXPECT_LT(recorder.bytes, bytes / 16);
  EXPECT_TRUE(told.empty() && source->content_hash.empty());
  const auto whole = adapters.fileSource(dir);
  EXPECT_EQ(source->bytes, whole->bytes);
  EXPECT_EQ(source->elements, whole->elements);
  EXPECT_TRUE(source->sizeIsExact());

  // The first load reports the content hash; later loads find the same.
  EXPECT_EQ(adapters.load(*source)->content_hash, whole->content_hash);
  EXPECT_EQ(told, std::vector<std::string>{whole->content_hash});
  EXPECT_EQ(adapters.load(*source)->content_hash, whole->content_hash);
  EXPECT_EQ(told.size(), 1u);
  EXPECT_TRUE(refused.empty());
}
INSTANTIATE_TEST_SUITE_P(Weights, DeferredRegistrationTest,
                         testing::Values("adapter_model.safetensors", "adapter_model.bin"),
                         [](const auto& info) { return fs::path(info.param).extension().string().substr(1); });

TEST_F(EngineAdaptersTest, TheCallerSeesTheWorkAndCanEndIt) {
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  const fs::path dir = directory_ / "large";
  const uint64_t bytes = fs::file_size(dir / "adapter_model.safetensors");
  uint64_t reported = 0, most = UINT64_MAX;
  const executor::AdapterFiles files{.path = dir, .open = openerOf(dir), .onWork = [&](size_t n) {
                                       reported += n;
                                       if (reported > most) fail(ErrorCode::kExhausted, "enough");
                                     }};
  adapters.fileSource(files);
  EXPECT_GE(reported, bytes);
  reported = 0;
  EXPECT_TRUE(adapters.inspect(files).accepted);
  EXPECT_GE(reported, bytes);

  most = bytes / 8;
  for (const bool inspects : {false, true}) {
    reported = 0;
    const uint64_t before = bytesRead();
    const std::string why =
        errorOf([&] { inspects ? void(adapters.inspect(files)) : void(adapters.fileSource(files)); });
    EXPECT_EQ(why, "enough");
    EXPECT_LT(bytesRead() - before, bytes / 4);
  }
}

// Uploads lie in directories with numbers.
TEST_F(EngineAdaptersTest, MessagesNameTheAdapterAsTheCallerDoes) {
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  const fs::path dir = directory_ / "large";
  executor::AdapterFiles files{.path = dir, .open = openerOf(dir), .deferContent = true};
  EXPECT_EQ(adapters.fileSource(files)->name, "large");
  files.name = "shout";
  EXPECT_EQ(adapters.fileSource(files)->name, "shout");
}

TEST_F(EngineAdaptersTest, FilesThatAreReadTogetherFitIntoTheLoadMemory) {
  const fs::path dir = directory_ / "large";
  const uint64_t bytes = fs::file_size(dir / "adapter_model.safetensors");
  const auto clock = [] { return ThrottleClock::ofThisThread([] { return false; }); };
  const EngineAdapters adapters(*ranks_, clock, 3 * bytes / 2);
  std::promise<void> begun, gate;
  size_t read_first = 0;
  bool waits = true;
  const auto wait_while_reading = [&](size_t n) {
    read_first += n;
    if (read_first < bytes / 4 || !std::exchange(waits, false)) return;
    begun.set_value();
    gate.get_future().wait();
  };
  std::thread first([&] { adapters.fileSource({.path = dir, .open = openerOf(dir), .onWork = wait_while_reading}); });
  begun.get_future().wait();
  std::atomic<uint64_t> done = 0;
  std::thread second([&] {
    adapters.fileSource(
        {.path = dir, .open = openerOf(dir), .onWork = [&](size_t n) { done += n == FileMemory::kWaitBytes ? 0 : n; }});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(done, bytes / 4) << "it has no room for the file yet";
  gate.set_value();
  first.join();
  second.join();
  EXPECT_GE(done, bytes);

  // The directory reads an adapter anew when a load reports new content.
  const auto deferred = adapters.fileSource({.path = dir,
                                             .open = openerOf(dir),
                                             .onContent = [&](const std::string&) { adapters.fileSource(dir); },
                                             .deferContent = true});
  EXPECT_NE(adapters.load(*deferred), nullptr);

  const EngineAdapters little(*ranks_, clock, bytes);
  const std::string why = errorOf([&] { little.fileSource(dir); });
  EXPECT_NE(why.find("three quarters of the memory for loads"), std::string::npos) << why;
}

TEST_F(EngineAdaptersTest, BytesOfNoTensorAreNotRead) {
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  const fs::path dir = directory_ / "padded";
  writeAsTorchFile(directory_ / "large", dir, size_t{64} << 20);
  const uint64_t before = bytesRead();
  const std::string why = errorOf([&] { adapters.fileSource(dir); });
  EXPECT_NE(why.find("bytes belong to none of its tensors"), std::string::npos) << why;
  EXPECT_LT(bytesRead() - before, size_t{4} << 20);
}

TEST_F(EngineAdaptersTest, ARefusalAtTheFirstLoadIsReported) {
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  std::vector<std::string> told, refused;
  bool busy = false;
  const auto register_deferred = [&](const fs::path& dir) {
    return adapters.fileSource({.path = dir,
                                .open = openerOf(dir),
                                .onContent =
                                    [&](const std::string& hash) {
                                      if (busy) fail(ErrorCode::kExhausted, "busy");
                                      told.push_back(hash);
                                    },
                                .onGone = nullptr,
                                .deferContent = true,
                                .onRefused = [&](const std::string& reason) { refused.push_back(reason); }});
  };
  writeAdapter(directory_ / "nan", std::numeric_limits<float>::quiet_NaN());
  const auto bad = register_deferred(directory_ / "nan");
  const auto refusal = [&](const AdapterSource& source) { return errorOf([&] { loadQuiet(adapters, source); }); };
  const std::string why = refusal(*bad);
  EXPECT_NE(why.find("not finite"), std::string::npos) << why;
  EXPECT_EQ(refused, std::vector<std::string>{why});
  EXPECT_TRUE(told.empty());

  // onRefused is not called for errors that the files did not cause, nor for an adapter that was loaded once.
  writeAdapter(directory_ / "once", 1.0f);
  const auto once = register_deferred(directory_ / "once");
  busy = true;
  EXPECT_EQ(refusal(*once), "busy");
  busy = false;
  loadQuiet(adapters, *once);
  writeAdapter(directory_ / "once", std::numeric_limits<float>::infinity());
  EXPECT_NE(refusal(*once), "");
  EXPECT_EQ(refused.size(), 1u);

  // A header that contradicts the model or its file is refused at once.
  fs::resize_file(directory_ / "once/adapter_model.safetensors", 100'000);
  EXPECT_NE(errorOf([&] { register_deferred(directory_ / "once"); }).find("truncated"), std::string::npos);
}

// Whole weights of an adapter replace the base's. Only an embedding and an output head are dropped if they equal the
// base's.
TEST_F(EngineAdaptersTest, AnAdapterThatTurnsOutTooLargeIsReportedAtItsFirstLoad) {
  const auto write = [&](const char* name, bool with_embedding) {
    const fs::path dir = directory_ / name;
    fs::create_directories(dir);
    std::vector<std::string> saved = {"up_proj"};
    std::vector<SafetensorsWriter::Declaration> tensors;
    if (with_embedding) {
      saved.emplace_back("embed_tokens");
      tensors.push_back(
          {"base_model.model.model.embed_tokens.weight", DType::kFloat32, {model().vocab_size, model().hidden_size}});
    }
    for (int32_t layer = 0; layer < model().num_hidden_layers; ++layer) {
      tensors.push_back({fmt::format("base_model.model.model.layers.{}.mlp.up_proj.weight", layer),
                         DType::kFloat32,
                         {model().intermediate_size, model().hidden_size}});
    }
    std::ofstream(dir / "adapter_config.json")
        << Json{{"peft_type", "LORA"}, {"r", 1}, {"target_modules", {"q_proj"}}, {"modules_to_save", saved}};
    SafetensorsWriter writer(dir / "adapter_model.safetensors", tensors);
    for (const auto& tensor : tensors) {
      const std::vector<float> values(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]), 0.5f);
      writer.write(tensor.name, 0, std::as_bytes(std::span(values)));
    }
    writer.finish();
    return dir;
  };
  const fs::path linears = write("linears", false), both = write("both", true);
  const auto no_rest = [] { return ThrottleClock::ofThisThread([] { return false; }); };
  std::vector<std::string> refused;
  const auto deferred = [&](const EngineAdapters& adapters, const fs::path& dir) {
    return adapters.fileSource({.path = dir,
                                .open = openerOf(dir),
                                .onContent = nullptr,
                                .onGone = nullptr,
                                .deferContent = true,
                                .onRefused = [&](const std::string& reason) { refused.push_back(reason); }});
  };
  const EngineAdapters adapters(*ranks_, no_rest);
  const auto exact = deferred(adapters, linears), at_most = deferred(adapters, both);
  EXPECT_TRUE(exact->sizeIsExact());
  EXPECT_FALSE(at_most->sizeIsExact());
  EXPECT_EQ(at_most->leastSize().bytes, exact->bytes);
  EXPECT_GT(at_most->bytes, exact->bytes);
  EXPECT_EQ(static_cast<int64_t>(adapters.load(*at_most)->bytes), at_most->bytes) << "the values are not the base's";

  const RankGroup limited(RankGroup::loadEngines(directory_ / "engine"), {.threads = 1},
                          {.max_batch_size = 4,
                           .max_num_tokens = 64,
                           .tokens_per_block = 16,
                           .kv_blocks = 8,
                           .max_adapter_bytes = exact->bytes});
  const EngineAdapters in_small_cache(limited, no_rest);
  const auto too_large = deferred(in_small_cache, both);
  const std::string why = errorOf([&] { in_small_cache.load(*too_large); });
  EXPECT_NE(why.find("more than the"), std::string::npos) << why;
  EXPECT_EQ(refused, std::vector<std::string>{why});
}

TEST_F(EngineAdaptersTest, OtherContentIsANewAdapterOrRefused) {
  const fs::path dir = directory_ / "replaced";
  writeAdapter(dir, 1.0f);
  std::vector<std::string> told;
  bool refuse = false;
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  const auto source = adapters.fileSource(dir, [&](const std::string& hash) {
    told.push_back(hash);
    if (refuse) fail(ErrorCode::kExhausted, "not this one");
  });
  EXPECT_EQ(told, std::vector<std::string>{source->content_hash});
  EXPECT_EQ(adapters.load(*source)->content_hash, source->content_hash);
  EXPECT_EQ(told.size(), 1u);

  const bool unsettled = eventually([&] {
    writeAdapter(dir, 2.0f);
    try {
      adapters.load(*source);
      told.resize(1);  // on this machine the write was a second ago
      return false;
    } catch (const AdapterUnsettled&) {
      return true;
    }
  });
  EXPECT_TRUE(unsettled) << "files may still be missing";
  const auto parts = loadQuiet(adapters, *source);
  EXPECT_NE(parts->content_hash, source->content_hash);
  EXPECT_EQ(parts->content_hash, adapters.fileSource(dir)->content_hash);
  EXPECT_EQ(told, (std::vector<std::string>{source->content_hash, parts->content_hash}));
  // Replacing only the weights file is enough.
  const auto again = adapters.fileSource(dir);
  writeAdapter(directory_ / "other", 3.0f);
  fs::rename(directory_ / "other" / "adapter_model.safetensors", dir / "adapter_model.safetensors");
  EXPECT_NE(loadQuiet(adapters, *again)->content_hash, again->content_hash);
  refuse = true;
  EXPECT_EQ(errorOf([&] { loadQuiet(adapters, *source); }), "not this one");
}

// On tmpfs only the first write to a page of a mapping changes the file's stamp.
TEST_F(EngineAdaptersTest, ContentIsKnownByItsBytesAndNotByStamps) {
  std::string dir = "/dev/shm/chorus_engine_adapters_XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  writeAdapter(dir, 1.0f);
  const fs::path weights = fs::path(dir) / "adapter_model.safetensors";
  const Descriptor file(::open(weights.c_str(), O_RDWR | O_CLOEXEC));
  const size_t size = fs::file_size(weights);
  void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::byte& last = static_cast<std::byte*>(mapped)[size - 1];
  last ^= std::byte{1};

  std::vector<std::string> told;
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  const auto source = adapters.fileSource(dir, [&](const std::string& hash) { told.push_back(hash); });
  const auto before = stampOf(weights);
  last ^= std::byte{1};
  EXPECT_EQ(stampOf(weights), before);
  const auto changed = loadQuiet(adapters, *source);
  EXPECT_NE(changed->content_hash, source->content_hash);
  EXPECT_EQ(told, (std::vector<std::string>{source->content_hash, changed->content_hash}));
  ::munmap(mapped, size);
  fs::remove_all(dir);
}

TEST_F(EngineAdaptersTest, LoadsAreConfinedAndTellWhenFilesAreGone) {
  const fs::path root = directory_ / "root";
  writeAdapter(root / "mine", 1.0f);
  writeAdapter(root / "other", 2.0f);
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  const auto top = Directory::open(root, Links::kNone);
  int gone = 0;
  const auto source = adapters.fileSource({.path = root / "mine",
                                           .open = [&] { return top->openDirectory("mine", Links::kInside); },
                                           .onContent = nullptr,
                                           .onGone = [&] { ++gone; }});
  EXPECT_EQ(adapters.load(*source)->content_hash, source->content_hash);
  const auto refusal = [&] { return errorOf([&] { loadQuiet(adapters, *source); }); };
  const fs::path weights = root / "mine" / "adapter_model.safetensors";
  fs::rename(weights, root / "kept");
  fs::create_symlink("../other/adapter_model.safetensors", weights);
  EXPECT_NE(refusal().find("a link that leads"), std::string::npos) << refusal();
  fs::rename(root / "mine", root / "aside");
  fs::create_directory_symlink("other", root / "mine");
  EXPECT_NE(refusal().find("a link that leads"), std::string::npos) << refusal();
  EXPECT_EQ(gone, 0);
  fs::remove(root / "mine");
  EXPECT_NE(refusal(), "");
  EXPECT_EQ(gone, 1);
}

TEST_F(EngineAdaptersTest, FilesThatWereCutOrAreNoFiles) {
  const fs::path dir = directory_ / "cut";
  writeAdapter(dir, 1.0f);
  const EngineAdapters adapters(*ranks_, [] { return ThrottleClock::ofThisThread([] { return false; }); });
  const auto source = adapters.fileSource(dir);
  const fs::path weights = dir / "adapter_model.safetensors";
  const uint64_t size = fs::file_size(weights);
  const auto refusal = [&] { return errorOf([&] { loadQuiet(adapters, *source); }); };
  fs::resize_file(weights, size / 2);
  EXPECT_NE(refusal(), "");
  fs::resize_file(weights, uint64_t{1} << 41);
  EXPECT_NE(refusal().find("the limit is"), std::string::npos) << refusal();
  fs::remove(weights);
  EXPECT_NE(refusal().find("neither adapter_model.safetensors nor adapter_model.bin"), std::string::npos);
  fs::create_directories(weights);
  EXPECT_EQ(refusal(), weights.string() + ": not a regular file");
}

}  // namespace
}  // namespace chorus
