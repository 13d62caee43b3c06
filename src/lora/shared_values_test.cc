// Tensors of a PyTorch file that share their values: how often an adapter may use the same bytes.
#include <gmock/gmock.h>

#include "formats/testing/torch_test_file.h"
#include "lora/testing/peft_family.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// The gate of each layer is saved whole.
class SharedValuesTest : public PeftFamilyTest {
 protected:
  static constexpr int64_t kRows = 20'000;
  static constexpr size_t kStorageBytes = kRows * 4 * sizeof(float);
  using Tensors = std::vector<std::pair<std::string, int>>;  // name and storage

  SharedValuesTest() {
    config_["modules_to_save"] = {"gate_proj"};
    WeightRow& gate = model_.table[1];
    gate.shape[0] = gate.sources[0].rows = gate.lora_targets[0].rows = kRows;
  }

  static std::string gateOf(int layer, const std::string& end = "weight") {
    return fmt::format("{}model.layers.{}.mlp.gate_proj.{}", kBase, layer, end);
  }

  // Saves tensors with the shape of a gate, each of which is one of the storages, and returns the refusal of the
  // values, if they are read, or else of the shapes.
  std::string refusalOf(const Tensors& tensors, const std::vector<std::string>& storages, bool has_values) {
    TestZip zip;
    std::vector<std::pair<std::string, std::string>> items;
    for (const auto& [name, storage] : tensors) {
      const auto memory =
          pickled::storage(pickled::global("torch", "FloatStorage"), std::to_string(storage), kRows * 4);
      items.emplace_back(name, pickled::tensor(memory, 0, {kRows, 4}, {4, 1}));
    }
    for (size_t i = 0; i < storages.size(); ++i) zip.entries.push_back({"a/data/" + std::to_string(i), storages[i]});
    zip.entries.push_back({"a/data.pkl", pickled::whole(pickled::dict(items))});
    zip.entries.push_back({"a/version", "3\n"});
    writeFileAtomically(dir_ / "adapter_config.json", config_.dump());
    writeFileAtomically(dir_ / "adapter_model.bin", zip.build());
    const AdapterTarget target = {model_.config, model_.table};
    FileReader files(Directory::open(dir_));
    return errorOf([&] {
      if (has_values) {
        readPeftAdapter(dir_, "a", target);
      } else {
        readPeftAdapter(readPeftHeaders(files, size_t{1} << 30).parse(), "a", target);
      }
    });
  }
  const std::string zeros_ = std::string(kStorageBytes, '\0');
};

TEST_F(SharedValuesTest, AFileIsUsedAFewTimesOnly) {
  const auto refusalOfLayers = [&](int layers, bool has_values) {
    model_.config.num_hidden_layers = layers;
    Tensors tensors;
    for (int layer = 0; layer < layers; ++layer) tensors.emplace_back(gateOf(layer), 0);
    return refusalOf(tensors, {zeros_}, has_values);
  };
  for (const bool has_values : {false, true}) {
    EXPECT_EQ(refusalOfLayers(4, has_values), "");
    const std::string line = refusalOfLayers(8, has_values);
    EXPECT_THAT(line, HasSubstr("adapter_model.bin: its tensors share their values"));
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

// PEFT may save the same values under several names. They are compared, but not more often than a file may be used.
TEST_F(SharedValuesTest, NamesOfTheSameWeights) {
  model_.config.num_hidden_layers = 1;
  Tensors shared, equal, both;
  for (int i = 0; i < 20; ++i) {
    const std::string name = gateOf(0, fmt::format("modules_to_save.x{}.weight", i));
    shared.emplace_back(name, 0);
    equal.emplace_back(name, i == 0 ? 0 : 1);
    if (i < 2) both.emplace_back(name, i);
  }
  for (const bool has_values : {false, true}) EXPECT_EQ(refusalOf(shared, {zeros_}, has_values), "");
  EXPECT_EQ(refusalOf(both, {zeros_, zeros_}, true), "");
  EXPECT_EQ(refusalOf(equal, {zeros_, zeros_}, false), "") << "nothing is compared";
  EXPECT_THAT(refusalOf(equal, {zeros_, zeros_}, true), HasSubstr("its tensors share their values"));
  std::string other = zeros_;
  other.front() = 1;
  EXPECT_THAT(refusalOf(both, {zeros_, other}, true), HasSubstr("is for the same weights as"));
}

}  // namespace
}  // namespace chorus
