// Malformed adapters through a real executor: each is refused in one line or answers, and requests beside it have the
// same bits as in a run without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "convert/dora_normalize.h"
#include "convert/lora_convert.h"
#include "executor_runs.h"
#include "fuzz/mutate_bytes.h"
#include "random_llama.h"
#include "runtime/lora_files.h"
#include "safetensors_edit.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using executor::LoraConfig;
using executor::Tensor;
using testing::HasSubstr;

constexpr uint64_t kFirstSeed = 1;
constexpr int kMutations = 10000;
constexpr int kBatch = 20;  // malformed adapters in flight together with three sound requests
constexpr int32_t kMaxRank = 16;
// The first task id of malformed adapters. Those of sound ones are lower.
constexpr executor::IdType kMalformed = 1000;

std::vector<uint8_t> readBytes(const fs::path& path) {
  const std::string text = readFile(path, size_t{1} << 24);
  return {text.begin(), text.end()};
}

// Unlike a real writer it does not sync, because the test writes ten thousand files.
void writeBytes(const fs::path& path, const std::vector<uint8_t>& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

Tensor tensorOf(executor::DataType type, const void* data, size_t size, const std::vector<int64_t>& shape) {
  Tensor tensor = Tensor::cpu(type, shape);
  if (size > 0) std::memcpy(tensor.getData(), data, std::min(size, tensor.getSizeInBytes()));
  return tensor;
}

// The message of the exception that f throws; empty if it throws none.
std::string lineOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

class MalformedAdapters : public testing::Test {
 protected:
  MalformedAdapters() {
    std::mt19937_64 rng(9);
    fillWeights(model_, rng);
    writeModel(model_, base_);
    for (const bool dora : {false, true}) {
      sound_.push_back(root_.path() / (dora ? "dora" : "lora"));
      writeRandomAdapter(model_, dora, rng, sound_.back());
    }
    normaliseDora(sound_[1], base_, root_.path() / "normalised", false);
    convertLora(root_.path() / "normalised", tensors_, DType::kFloat32);
    log::set_level(log::level::off);  // every refusal would be logged too
    BuildConfig build = testBuildConfig();
    build.max_lora_rank = kMaxRank;
    executor_ = openExecutor(testEngine(base_, DType::kFloat32, build), executor::ExecutorConfig(), sound_);
    beside_ = {greedyRequest({1, 2, 3, 4, 5, 6, 7}, 6, std::nullopt), greedyRequest({8, 9, 10}, 6, 0),
               greedyRequest({11, 12, 13, 14}, 6, 1)};
    expected_ = hashOfAll(runTogether(*executor_, beside_));
  }

  ~MalformedAdapters() override { log::set_level(log::level::info); }

  static executor::Request requestFor(LoraConfig lora) {
    executor::OutputConfig output;
    output.excludeInputFromOutput = true;
    executor::Request request({1, 2, 3}, 4, false, executor::SamplingConfig(), output);
    request.setLoraConfig(std::move(lora));
    return request;
  }
  // The error with which a request ends; empty if it was answered.
  std::string endOf(executor::IdType id) {
    const auto responses = executor_->awaitResponses(id, std::chrono::seconds(60));
    if (responses.empty()) return "no answer";
    return responses.back().hasError() ? responses.back().getErrorMsg() : "";
  }
  // Enqueues malformed requests among sound ones, waits for all, checks the sound answers, and returns the errors of
  // the malformed ones.
  std::vector<std::string> runBeside(const std::vector<executor::Request>& malformed) {
    std::vector<executor::Request> all = malformed;
    for (size_t i = 0; i < beside_.size(); ++i) {
      all.insert(all.begin() + static_cast<std::ptrdiff_t>(i * malformed.size() / beside_.size() + i), beside_[i]);
    }
    const auto ids = executor_->enqueueRequests(all);
    std::vector<std::string> errors;
    std::vector<RunAnswer> answers;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& lora = all[i].getLoraConfig();
      if (lora && lora->getTaskId() >= kMalformed) {
        errors.push_back(endOf(ids[i]));
      } else {
        answers.push_back(awaitAnswer(*executor_, ids[i], all[i].getInputTokenIds().size()));
      }
    }
    EXPECT_EQ(hashOfAll(answers), expected_) << "a request beside malformed adapters changed";
    return errors;
  }
  static void expectOneLine(const std::string& error, uint64_t seed) {
    EXPECT_EQ(error.find('\n'), std::string::npos) << "seed " << seed << ": " << error;
    EXPECT_LT(error.size(), 2000u) << "seed " << seed << ": " << error;
    EXPECT_NE(error, "no answer") << "seed " << seed;
  }

  fs::path mutationDirectory(int number) const { return root_.path() / ("mutation" + std::to_string(number)); }
  // Writes a sound adapter with one of its files mutated.
  void makeMutation(bool as_tensors, std::mt19937_64& rng, const fs::path& dir) const;

  const TempDir root_;
  RandomLlama model_;
  const fs::path base_ = root_.path() / "model", tensors_ = root_.path() / "tensors";
  std::vector<fs::path> sound_;
  std::unique_ptr<executor::Executor> executor_;
  std::vector<executor::Request> beside_;
  std::string expected_;
};

TEST_F(MalformedAdapters, EachDirectoryIsRefusedInOneLineThatSaysWhy) {
  fs::path dir;
  const std::string q = "base_model.model.model.layers.0.self_attn.o_proj.";
  const auto weights = [&] { return dir / "adapter_model.safetensors"; };
  const auto editTensor = [&](const std::string& name, const std::function<void(OrderedJson&)>& edit) {
    editHeader(weights(), [&](OrderedJson& header) { edit(header.at(q + name)); });
  };
  const auto config = [&](const std::string& field, const Json& value) {
    Json json = readJsonFile(dir / "adapter_config.json");
    json[field] = value;
    writeFileAtomically(dir / "adapter_config.json", json.dump());
  };
  const auto rename = [&](const std::string& from, const std::string& to) {
    editHeader(weights(), [&](OrderedJson& header) {
      const OrderedJson tensor = header.at(from);
      header.erase(from);
      header[to] = tensor;
    });
  };
  const auto lastValue = [&](float value) {
    std::vector<uint8_t> bytes = readBytes(weights());
    std::memcpy(bytes.data() + bytes.size() - sizeof(value), &value, sizeof(value));
    writeBytes(weights(), bytes);
  };
  const std::tuple<const char*, std::function<void()>, const char*> cases[] = {
      {"truncated", [&] { truncateFile(weights(), 0.8); }, "adapter_model.safetensors"},
      {"truncated header", [&] { truncateFile(weights(), 0.01); }, "adapter_model.safetensors"},
      {"empty", [&] { writeBytes(weights(), {}); }, "adapter_model.safetensors"},
      {"no weights", [&] { fs::remove(weights()); }, "neither adapter_model.safetensors nor adapter_model.bin"},
      {"no config", [&] { fs::remove(dir / "adapter_config.json"); }, "adapter_config.json"},
      {"config cut off", [&] { truncateFile(dir / "adapter_config.json", 0.5); }, "adapter_config.json"},
      {"wrong shape",
       [&] { editTensor("lora_A.weight", [](OrderedJson& t) { std::swap(t["shape"][0], t["shape"][1]); }); },
       "has shape"},
      {"wrong rank", [&] { config("r", 11); }, "has shape"},
      {"not a number", [&] { lastValue(std::numeric_limits<float>::quiet_NaN()); }, "not finite"},
      {"infinite", [&] { lastValue(std::numeric_limits<float>::infinity()); }, "not finite"},
      {"rank 0", [&] { config("r", 0); }, "'r' must be a whole number of at least 1"},
      {"negative rank", [&] { config("r", -4); }, "'r' must be a whole number of at least 1"},
      {"rank above the maximum", [&] { config("r", kMaxRank + 1); }, "above the maximum of 16"},
      {"unknown module", [&] { rename(q + "lora_A.weight", "base_model.model.model.layers.0.attn.x.lora_A.weight"); },
       "layers.0.attn.x"},
      {"layer behind the last",
       [&] { rename(q + "lora_A.weight", "base_model.model.model.layers.3.self_attn.o_proj.lora_A.weight"); },
       "layer 3"},
      {"A without B", [&] { dropTensor(weights(), q + "lora_B.weight"); }, "lora_B is missing"},
      {"B without A", [&] { dropTensor(weights(), q + "lora_A.weight"); }, "lora_A is missing"},
      {"integers", [&] { editTensor("lora_B.weight", [](OrderedJson& t) { t["dtype"] = "I32"; }); }, "int32"},
      {"another method", [&] { config("peft_type", "IA3"); }, "IA3"}};
  std::vector<executor::Request> requests;
  for (const auto& [name, spoil, part] : cases) {
    SCOPED_TRACE(name);
    const auto task_id = kMalformed + static_cast<executor::IdType>(requests.size());
    dir = root_.path() / name;
    fs::copy(sound_[0], dir);
    spoil();
    const std::string refusal = lineOf([&] { executor_->registerAdapter(task_id, dir); });
    EXPECT_THAT(refusal, HasSubstr(part));
    expectOneLine(refusal, 0);
    requests.push_back(requestFor(LoraConfig(task_id)));
  }
  // An adapter whose registration was refused is unknown.
  for (const std::string& error : runBeside(requests)) {
    EXPECT_THAT(error, testing::EndsWith(" not found in cache. Please send LoRA weights with request"));
  }
  // Now the directories are damaged after they were registered.
  for (size_t i = 0; i < requests.size(); ++i) {
    dir = root_.path() / std::get<0>(cases[i]);
    fs::remove_all(dir);
    fs::copy(sound_[0], dir);
    executor_->registerAdapter(kMalformed + i, dir);
    std::get<1>(cases[i])();
  }
  const auto errors = runBeside(requests);
  for (size_t i = 0; i < errors.size(); ++i) {
    EXPECT_THAT(errors[i], testing::AllOf(HasSubstr(std::get<2>(cases[i])), HasSubstr("Error storing task=")))
        << std::get<0>(cases[i]);
    expectOneLine(errors[i], 0);
  }
}

TEST_F(MalformedAdapters, TensorsAreRefusedInOneLineEach) {
  const LoraTensors sound = readLoraFiles(tensors_);
  const executor::Shape whole = sound.weights.getShape();
  const std::vector<int64_t> shape(whole.begin(), whole.end());
  const int64_t rows = shape[1], longest = shape[2];
  std::vector<int32_t> config(static_cast<size_t>(rows) * 4);
  std::vector<float> weights(static_cast<size_t>(rows * longest));
  std::memcpy(config.data(), sound.config.getData(), config.size() * 4);
  std::memcpy(weights.data(), sound.weights.getData(), weights.size() * 4);
  using executor::DataType;
  const auto request = [&](std::vector<int64_t> weights_shape, std::vector<int64_t> config_shape,
                           const std::vector<int32_t>& rows_of_config, const std::vector<float>& values,
                           DataType type = DataType::kFP32) {
    return requestFor(
        LoraConfig(kMalformed, tensorOf(type, values.data(), values.size() * 4, weights_shape),
                   tensorOf(DataType::kINT32, rows_of_config.data(), rows_of_config.size() * 4, config_shape)));
  };
  const auto withConfig = [&](size_t at, int32_t value) {
    std::vector<int32_t> changed = config;
    changed[at] = value;
    return request(shape, {1, rows, 4}, changed, weights);
  };
  std::vector<float> not_a_number = weights;
  not_a_number[1] = std::numeric_limits<float>::quiet_NaN();
  const std::tuple<const char*, std::function<executor::Request()>, const char*> cases[] = {
      {"cut off", [&] { return request({1, rows, longest - 1}, {1, rows, 4}, config, weights); },
       "lora_weights has to few values for"},
      {"fewer rows", [&] { return request({1, rows - 1, longest}, {1, rows, 4}, config, weights); },
       "to have the same size"},
      {"five columns", [&] { return request({1, rows, longest}, {1, rows * 4 / 5, 5}, config, weights); }, "same size"},
      {"two columns", [&] { return request({1, rows * 2, longest}, {1, rows * 2, 2}, config, weights); },
       "a size in [3, 4]"},
      {"two adapters", [&] { return request({2, rows, longest}, {1, rows, 4}, config, weights); }, "dimension"},
      {"one dimension", [&] { return request({rows * longest}, {1, rows, 4}, config, weights); }, "dimension"},
      {"not a number", [&] { return request(shape, {1, rows, 4}, config, not_a_number); }, "not finite"},
      {"integers", [&] { return request(shape, {1, rows, 4}, config, weights, DataType::kINT32); },
       "same data type as base model"},
      {"rank 0", [&] { return withConfig(2, 0); }, "Expected adapterSize to be > 0"},
      {"negative rank", [&] { return withConfig(2, -3); }, "Expected adapterSize to be > 0"},
      {"a vast rank", [&] { return withConfig(2, INT32_MAX); }, "lora_weights has to few values"},
      {"unknown module", [&] { return withConfig(0, 99); }, "lora module 99 not enabled for this model"},
      {"another model's module", [&] { return withConfig(0, 13); },
       "lora module moe_h_to_4h not enabled for this model"},
      {"negative layer", [&] { return withConfig(1, -1); }, "[0, numModelLayers)"},
      {"layer behind the last", [&] { return withConfig(1, 3); }, "[0, numModelLayers)"},
      {"twice the same", [&] { return withConfig(4, config[0]); }, "twice"}};
  for (const auto& [name, make, part] : cases) {
    SCOPED_TRACE(name);
    std::vector<executor::Request> malformed;
    // A request that its own constructor refuses never reaches the executor.
    std::string error = lineOf([&, &make = make] { malformed.push_back(make()); });
    if (error.empty()) {
      error = runBeside(malformed).at(0);
      EXPECT_THAT(error, HasSubstr("Error storing task=1000 in PEFT cache -- "));
    }
    EXPECT_THAT(error, HasSubstr(part));
    EXPECT_NE(error, "");
    expectOneLine(error, 0);
  }
  const int32_t wide_rank = kMaxRank + 1;
  const int64_t wide = wide_rank * (model_.hidden + model_.heads * model_.head_size);
  const std::vector<float> zeros(static_cast<size_t>(wide));
  EXPECT_THAT(runBeside({request({1, 1, wide}, {1, 1, 4}, {1, 0, wide_rank, 0}, zeros)}).at(0),
              HasSubstr("Invalid low_rank (17). low_rank must be smaller than mMaxLowRank (16)"));
  const LoraConfig again(kMalformed, sound.weights, sound.config);
  EXPECT_THAT(runBeside({requestFor(again)}), testing::ElementsAre("")) << "the sound tensors are still taken";
}

// Replaces a random value of the document.
void mutateJson(OrderedJson& json, std::mt19937_64& rng) {
  OrderedJson* at = &json;
  for (OrderedJson* parent = at; at->is_structured() && !at->empty() && (at == parent || rng() % 4 != 0);) {
    auto member = at->begin();
    std::advance(member, static_cast<std::ptrdiff_t>(rng() % at->size()));
    at = &*member;
  }
  if (at->is_number() && rng() % 2 == 0) {
    *at = at->get<double>() + static_cast<double>(rng() % 3) - 1;
    if (rng() % 2 == 0) *at = static_cast<int64_t>(at->get<double>());
    return;
  }
  static const OrderedJson kValues[] = {nullptr,
                                        0,
                                        -1,
                                        1,
                                        2,
                                        16,
                                        17,
                                        1e300,
                                        1e-300,
                                        "",
                                        "F16",
                                        "F64",
                                        "q_proj",
                                        ".*(a|b)*c",
                                        true,
                                        false,
                                        INT64_MAX,
                                        OrderedJson::array(),
                                        OrderedJson::object(),
                                        OrderedJson::array({1, 2}),
                                        "all-linear"};
  *at = kValues[rng() % std::size(kValues)];
}

std::vector<uint8_t> mutateFile(const fs::path& path, std::mt19937_64& rng) {
  const std::vector<uint8_t> bytes = readBytes(path);
  if (rng() % 2 == 0) return mutateBytes(bytes, rng);
  if (path.extension() == ".json") {
    OrderedJson json = parseOrderedJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "config");
    mutateJson(json, rng);
    const std::string text = json.dump();
    return {text.begin(), text.end()};
  }
  // Overwrites one number in the last half of the file, where the values are.
  std::vector<uint8_t> changed = bytes;
  static constexpr float kValues[] = {std::numeric_limits<float>::quiet_NaN(),  std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::max(),        -1e30f,
                                      std::numeric_limits<float>::denorm_min(), 70000.0f};
  const size_t at = changed.size() - 4 * (1 + rng() % (changed.size() / 8));
  std::memcpy(changed.data() + at, &kValues[rng() % std::size(kValues)], 4);
  return changed;
}

void mutateHeader(const fs::path& file, std::mt19937_64& rng) {
  editHeader(file, [&](OrderedJson& header) {
    auto member = header.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(rng() % header.size()));
    if (rng() % 2 == 0) return mutateJson(*member, rng);
    std::string name = member.key();
    const OrderedJson tensor = *member;
    header.erase(name);
    const std::vector<uint8_t> changed = mutateBytes({name.begin(), name.end()}, rng);
    name.clear();
    for (const uint8_t c : changed) name += static_cast<char>(c % 95 + 32);
    header[name] = tensor;
  });
}

void MalformedAdapters::makeMutation(bool as_tensors, std::mt19937_64& rng, const fs::path& dir) const {
  const fs::path sound = as_tensors ? tensors_ : sound_[rng() % sound_.size()];
  fs::remove_all(dir);
  fs::copy(sound, dir);
  if (!as_tensors && rng() % 3 == 0) return mutateHeader(dir / "adapter_model.safetensors", rng);
  const char* files[] = {"adapter_config.json", "adapter_model.safetensors", kLoraConfigFile, kLoraWeightsFile};
  const fs::path file = dir / files[rng() % 2 + (as_tensors ? 2 : 0)];
  writeBytes(file, mutateFile(file, rng));
}

// The tensors of a directory. In half of the cases one number of their config is changed.
LoraConfig mutatedTensors(executor::IdType id, const fs::path& dir, uint64_t seed) {
  LoraTensors tensors = readLoraFiles(dir);
  std::mt19937_64 rng(seed ^ 0x5eed);
  if (rng() % 2 == 0 && tensors.config.getSizeInBytes() >= 16) {
    static constexpr int32_t kNumbers[] = {-1, 0, 1, 2, 3, 7, 8, 16, 17, 18, 19, INT32_MAX, INT32_MIN};
    auto* values = static_cast<int32_t*>(tensors.config.getData());
    values[rng() % (tensors.config.getSizeInBytes() / 4)] = kNumbers[rng() % std::size(kNumbers)];
  }
  return LoraConfig(id, tensors.weights, tensors.config);
}

TEST_F(MalformedAdapters, MutationsAreRefusedOrAnswerAndDisturbNobody) {
  int refused = 0, answered = 0, failed = 0;
  for (uint64_t first = kFirstSeed; first < kFirstSeed + kMutations; first += kBatch) {
    // Writes all files first, because a load waits for files that changed just now.
    std::vector<bool> as_tensors;
    for (int i = 0; i < kBatch; ++i) {
      std::mt19937_64 rng(first + static_cast<uint64_t>(i));
      as_tensors.push_back(rng() % 2 == 0);
      makeMutation(as_tensors.back(), rng, mutationDirectory(i));
    }
    std::vector<executor::Request> requests;
    std::vector<uint64_t> seeds;
    for (int i = 0; i < kBatch; ++i) {
      const uint64_t seed = first + static_cast<uint64_t>(i);
      const auto id = kMalformed + static_cast<executor::IdType>(i);
      const fs::path dir = mutationDirectory(i);
      const std::string refusal = lineOf([&] {
        if (as_tensors[static_cast<size_t>(i)]) {
          requests.push_back(requestFor(mutatedTensors(id, dir, seed)));
        } else {
          executor_->registerAdapter(id, dir);
          requests.push_back(requestFor(LoraConfig(id)));
        }
      });
      expectOneLine(refusal, seed);
      if (refusal.empty()) {
        seeds.push_back(seed);
      } else {
        ++refused;
      }
      if (as_tensors[static_cast<size_t>(i)] || i % 5 != 0) continue;
      // The converter must be as careful: one error line, or an output.
      const fs::path out = root_.path() / "converted";
      const std::string conversion = lineOf([&] { convertLora(dir, out, DType::kFloat16); });
      expectOneLine(conversion, seed);
      EXPECT_EQ(fs::exists(out), conversion.empty()) << "seed " << seed;
      fs::remove_all(out);
    }
    const auto errors = runBeside(requests);
    for (size_t i = 0; i < errors.size(); ++i) {
      expectOneLine(errors[i], seeds[i]);
      ++(errors[i].empty() ? answered : failed);
    }
    for (int i = 0; i < kBatch; ++i) executor_->unregisterAdapter(kMalformed + static_cast<executor::IdType>(i));
    if (HasFailure()) FAIL() << "up to seed " << first + kBatch;
  }
  std::printf("%d refused when read, %d as requests, %d answered\n", refused, failed, answered);
  EXPECT_EQ(refused + failed + answered, kMutations);
  EXPECT_GT(refused, kMutations / 10);
  EXPECT_GT(failed, kMutations / 50);
  EXPECT_GT(answered, kMutations / 50);
}

}  // namespace
}  // namespace chorus::test
