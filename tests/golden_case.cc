#include "golden_case.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/json.h"
#include "formats/safetensors.h"

namespace chorus::test {
namespace {
// Name -> directory. A family is a folder of goldens/ whose manifest.json lists its variants.
const std::map<std::string, std::filesystem::path>& goldens() {
  static const auto kGoldens = [] {
    std::map<std::string, std::filesystem::path> found;
    for (const auto& family :
         std::filesystem::directory_iterator(std::filesystem::path(CHORUS_SOURCE_DIR) / "tests/goldens")) {
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
  golden.directory = goldens().at(name);
  golden.vocab_size = readJsonFile(golden.directory / "config.json").at("vocab_size").get<int64_t>();
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
    row.tokens = from.at("expected").at(dtype_name).at("tokens").get<std::vector<int32_t>>();
    row.first_position = from.at("first_logits_position").get<int64_t>();
    const TensorView* logits = expected.find(dtype_name + "." + std::to_string(golden.rows.size()));
    row.logits.resize(static_cast<size_t>(logits->elements()));
    convertElements(logits->bytes.data(), logits->dtype, row.logits.data(), DType::kFloat32, row.logits.size());
    golden.rows.push_back(std::move(row));
  }
  return golden;
}

std::string cutRefusal(const GoldenCase& golden, int32_t tp_size) {
  const Json config = readJsonFile(golden.directory / "config.json");
  const std::string over = "tp_size " + std::to_string(tp_size);
  const auto size = [&](const char* key) { return config.at(key).get<int64_t>(); };
  const auto named = [&](const char* key) { return key + (" " + std::to_string(size(key))); };
  if (size("num_attention_heads") % tp_size != 0) return named("num_attention_heads") + " is not a multiple of " + over;
  if (size("num_key_value_heads") % tp_size != 0 && tp_size % size("num_key_value_heads") != 0) {
    return named("num_key_value_heads") + " and " + over + ": one must be a multiple of the other";
  }
  if (size("intermediate_size") % tp_size != 0) return named("intermediate_size") + " is not a multiple of " + over;
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
