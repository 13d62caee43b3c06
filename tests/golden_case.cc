#include "golden_case.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "hashed_weights.h"
#include "models/architecture.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {
// Name -> directory. A family is a folder of goldens/ whose manifest.json lists its variants.
const std::map<std::string, std::filesystem::path>& goldens() {
  static const auto kGoldens = [] {
    std::map<std::string, std::filesystem::path> found;
    for (const auto& family : std::filesystem::directory_iterator(test::sourceDir() / "tests/goldens")) {
      const auto manifest = family.path() / "manifest.json";
      if (!std::filesystem::exists(manifest)) continue;
      const Json json = readJsonFile(manifest);
      if (!json.contains("variants")) continue;
      for (const auto& name : json.at("variants").get<std::vector<std::string>>()) found[name] = family.path() / name;
    }
    return found;
  }();
  return kGoldens;
}

// The directory with all of a golden's files. A golden whose weights are described is completed in a directory that
// lives as long as the process.
std::filesystem::path completed(const std::string& name) {
  namespace fs = std::filesystem;
  fs::path stored = goldens().at(name);
  if (!fs::exists(stored / "weights.json")) return stored;
  static const TempDir kDirectory;
  const fs::path made = kDirectory.path() / name;
  if (!fs::exists(made)) {
    fs::copy(stored, made, fs::copy_options::recursive);
    writeHashedWeights(stored, made);
  }
  return made;
}

ModelConfig configOf(const GoldenCase& golden) {
  const Json json = readJsonFile(golden.directory / "config.json");
  const Architecture& architecture = findArchitecture(json.at("architectures").at(0).get<std::string>());
  return architecture.configFromHuggingFace(json, golden.name);
}

std::vector<float> floatsOf(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  convertElements(tensor.bytes.data(), tensor.dtype, values.data(), DType::kFloat32, values.size());
  return values;
}

// Element i of an int8 or int16 tensor.
float integerAt(const TensorView& tensor, size_t i) {
  if (tensor.dtype == DType::kInt8) return static_cast<float>(static_cast<int8_t>(tensor.bytes[i]));
  if (tensor.dtype != DType::kInt16) fail(ErrorCode::kCorrupt, "differences must be int8 or int16");
  int16_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
  return static_cast<float>(value);
}
}  // namespace

std::vector<int32_t> GoldenRow::fed() const {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end() - 1);
  return all;
}

std::vector<std::string> goldenNames() {
  std::vector<std::string> names;
  for (const auto& [name, directory] : goldens()) names.push_back(name);
  return names;
}

GoldenCase loadGolden(const std::string& name, DType dtype) {
  GoldenCase golden;
  golden.name = name;
  golden.dtype = dtype;
  golden.directory = completed(name);
  golden.vocab_size = configOf(golden).vocab_size;
  const Json json = readJsonFile(golden.directory / "case.json");
  golden.adapters = json.at("adapters").get<std::vector<std::string>>();
  const Safetensors expected = Safetensors::open(golden.directory / "expected.safetensors");
  const std::string dtype_name(dtypeName(dtype));
  for (const Json& from : json.at("rows")) {
    GoldenRow row;
    if (const Json& adapter = from.at("adapter"); !adapter.is_null()) {
      const auto at = std::find(golden.adapters.begin(), golden.adapters.end(), adapter.get<std::string>());
      row.adapter = static_cast<size_t>(at - golden.adapters.begin());
    }
    row.prompt = from.at("prompt").get<std::vector<int32_t>>();
    const Json& answer = from.at("expected").at(dtype_name);
    row.tokens = answer.at("tokens").get<std::vector<int32_t>>();
    row.first_position = from.at("first_logits_position").get<int64_t>();
    const std::string number = std::to_string(golden.rows.size()), own = fmt::format("{}.{}", dtype_name, number);
    if (answer.contains("logits_step")) {
      const TensorView& steps = *expected.find(own);
      row.logits = floatsOf(*expected.find("float32." + number));
      const auto step = answer.at("logits_step").get<float>();
      if (static_cast<size_t>(steps.elements()) != row.logits.size()) {
        fail(ErrorCode::kCorrupt, "row {}: {} differences for {} logits", number, steps.elements(), row.logits.size());
      }
      for (size_t i = 0; i < row.logits.size(); ++i) {
        row.logits[i] += step * integerAt(steps, i);
      }
    } else {
      row.logits = floatsOf(*expected.find(own));
    }
    golden.rows.push_back(std::move(row));
  }
  return golden;
}

std::string cutRefusal(const GoldenCase& golden, int32_t tp_size) {
  const ModelConfig config = configOf(golden);
  const std::string over = "tp_size " + std::to_string(tp_size);
  const auto named = [](const char* field, int64_t size) { return field + (" " + std::to_string(size)); };
  if (config.num_attention_heads % tp_size != 0) {
    return named("num_attention_heads", config.num_attention_heads) + " is not a multiple of " + over;
  }
  if (config.num_key_value_heads % tp_size != 0 && tp_size % config.num_key_value_heads != 0) {
    return named("num_key_value_heads", config.num_key_value_heads) + " and " + over +
           ": one must be a multiple of the other";
  }
  if (config.intermediate_size % tp_size != 0) {
    return named("intermediate_size", config.intermediate_size) + " is not a multiple of " + over;
  }
  return "";
}

std::vector<float> tokenMargins(const GoldenRow& row, int64_t vocab_size) {
  const size_t vocab = static_cast<size_t>(vocab_size);
  const float* logits = row.logits.data() + row.logits.size() - row.tokens.size() * vocab;
  std::vector<float> margins;
  for (const int32_t chosen : row.tokens) {
    float second = -std::numeric_limits<float>::infinity();
    for (size_t token = 0; token < vocab; ++token) {
      if (token != static_cast<size_t>(chosen)) second = std::max(second, logits[token]);
    }
    margins.push_back(logits[chosen] - second);
    logits += vocab;
  }
  return margins;
}

}  // namespace chorus::test
