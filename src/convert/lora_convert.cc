#include "convert/lora_convert.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/staged_directory.h"
#include "convert/lora_places.h"
#include "convert/peft_modules.h"
#include "formats/npy.h"
#include "lora/adapter_builder.h"
#include "lora/adapter_files.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

struct Row {
  int32_t module_id = 0;
  int32_t layer = 0;
  std::map<size_t, const PeftModule*> experts;  // by number; a single one if there is no mixture of experts

  const PeftModule& first() const { return *experts.begin()->second; }
  uint64_t values() const {
    const char* name = first().key_a.c_str();
    const auto in_and_out = checkedAdd(static_cast<uint64_t>(first().in()), static_cast<uint64_t>(first().out()), name);
    const auto low_rank =
        checkedMul(checkedMul(static_cast<uint64_t>(first().rank()), in_and_out, name), experts.size(), name);
    return !first().hasMagnitude() ? low_rank : checkedAdd(low_rank, static_cast<uint64_t>(first().out()), name);
  }
};

[[noreturn]] void refuse(const PeftModules& adapter, const std::string& tensor, std::string_view reason) {
  fail(ErrorCode::kUnsupported, "{}: tensor '{}' {}", adapter.source, tensor, reason);
}

class RowOrder {
 public:
  explicit RowOrder(const PeftModules& adapter) : adapter_(adapter) {
    for (const PeftModule& module : adapter.modules) place(module);
  }

  // All rows, layer by layer.
  std::vector<Row> rows() {
    std::vector<Row> all;
    for (auto& layer : layers_) {
      for (Row& row : layer) {
        checkExperts(row);
        all.push_back(std::move(row));
      }
    }
    return all;
  }

 private:
  void place(const PeftModule& module) {
    const auto place = loraPlaceOf(module.name);
    if (!place) {
      refuse(adapter_, module.key_a,
             "adapts a module that has no LoRA module id; the form knows attention, MLP, expert and router linears of "
             "numbered layers");
    }
    const auto [layer, is_new_layer] = layer_index_.emplace(place->layer, layers_.size());
    if (is_new_layer) layers_.emplace_back();
    std::vector<Row>& rows = layers_[layer->second];
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.module_id == place->module_id; });
    if (row == rows.end()) {
      rows.push_back({.module_id = place->module_id, .layer = place->layer});
      row = rows.end() - 1;
    }
    const auto expert = static_cast<size_t>(std::max(place->expert, 0));
    const bool has_experts = place->expert >= 0;
    const auto [known, inserted] = row->experts.emplace(expert, &module);
    if (!inserted) {
      refuse(adapter_, module.key_a,
             fmt::format("is {} of layer {}, and so is '{}'; a row of the tensors holds one",
                         *loraModuleName(place->module_id), place->layer, known->second->key_a));
    }
    if (has_experts && module.hasMagnitude()) {
      refuse(adapter_, module.key_magnitude, "is a DoRA magnitude of an expert, which the form cannot hold");
    }
    if (mayBeGroupedByHead(module)) {
      refuse(adapter_, module.key_b,
             "has rows that most of the models with this name group by head (queries, keys, values of one head after "
             "another), but the tensors hold all queries, then all keys and all values. Give a server the PEFT "
             "directory, whose order follows from the model");
    }
  }

  // GPT-NeoX, BLOOM and Falcon name the fused linear query_key_value, GPT-2 and GPT-BigCode c_attn. GPT-2's, which PEFT
  // marks by fan_in_fan_out, has all queries first, and so has GPT-BigCode's with one head of keys and values. NeMo's
  // were ordered by the reader.
  bool mayBeGroupedByHead(const PeftModule& module) const {
    if (!adapter_.config.is_object()) return false;
    if (module.name.ends_with(".query_key_value")) return true;
    const auto stored = adapter_.config.find("fan_in_fan_out");
    const bool is_gpt2 = stored != adapter_.config.end() && stored->is_boolean() && stored->get<bool>();
    return module.name.ends_with(".c_attn") && !is_gpt2 && module.out() / 3 == module.in();
  }

  [[noreturn]] void refuseGap(const PeftModule& module) const {
    refuse(adapter_, module.key_a, "adapts one expert of several; a row of the tensors holds all of a layer's");
  }

  // Checks that the row has all experts of its layer and that they have equal shapes.
  void checkExperts(const Row& row) {
    if (row.module_id < 13 || row.module_id > 15) return;
    if (experts_ == 0) experts_ = row.experts.size();
    const bool all = row.experts.size() == experts_ && row.experts.rbegin()->first + 1 == experts_;
    if (!all) refuseGap(row.first());
    for (const auto& [number, expert] : row.experts) {
      if (expert->a.shape != row.first().a.shape || expert->b.shape != row.first().b.shape) {
        refuse(adapter_, expert->key_a,
               fmt::format("or its lora_B is of another shape than those of '{}', beside "
                           "which it stands in a row of the tensors",
                           row.first().key_a));
      }
    }
  }

  const PeftModules& adapter_;
  std::map<int32_t, size_t> layer_index_;
  std::vector<std::vector<Row>> layers_;  // in the order of each layer's first module
  size_t experts_ = 0;
};

class RowWriter {
 public:
  RowWriter(const PeftModules& adapter, DType storage, uint64_t longest)
      : adapter_(adapter), storage_(storage), bytes_(longest * dtypeSize(storage)) {}

  std::span<const std::byte> pack(const Row& row) {
    used_ = 0;
    for (const auto& [number, expert] : row.experts) add(expert->a, expert->key_a, 1.0f);
    for (const auto& [number, expert] : row.experts) add(expert->b, expert->key_b, expert->scale);
    if (row.first().hasMagnitude()) add(row.first().magnitude, row.first().key_magnitude, 1.0f);
    std::fill(bytes_.begin() + static_cast<std::ptrdiff_t>(used_), bytes_.end(), std::byte{0});
    return bytes_;
  }

 private:
  void add(const TensorView& tensor, const std::string& key, float scale) {
    std::vector<float> values = toFloats(tensor);
    if (scale != 1.0f) {
      for (float& value : values) value *= scale;
    }
    std::byte* to = bytes_.data() + used_;
    const size_t size = values.size() * dtypeSize(storage_);
    convertElements(values.data(), DType::kFloat32, to, storage_, values.size());
    if (!allFinite({to, size}, storage_)) {
      refuse(adapter_, key,
             fmt::format("{}holds values beyond {}'s range; choose another --storage-type",
                         scale != 1.0f ? fmt::format("times its scale of {} ", scale) : "", dtypeName(storage_)));
    }
    used_ += size;
  }

  const PeftModules& adapter_;
  DType storage_;
  std::vector<std::byte> bytes_;
  size_t used_ = 0;
};

std::optional<std::string> foreignToLoraTensors(const fs::path& dir) {
  return firstForeignEntry(dir, [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name == kLoraConfigFile || name == kLoraWeightsFile;
  });
}
}  // namespace

LoraConversion convertLora(const fs::path& adapter_path, const fs::path& output_dir, DType storage) {
  const bool is_nemo = AdapterLocation::of(adapter_path).isArchive();
  const PeftModules adapter = is_nemo ? readNemoModulesOf(adapter_path) : readPeftModules(adapter_path);
  const std::vector<Row> rows = RowOrder(adapter).rows();
  uint64_t longest = 0;
  std::vector<int32_t> config;
  for (const Row& row : rows) {
    longest = std::max(longest, row.values());
    config.insert(config.end(), {row.module_id, row.layer, static_cast<int32_t>(row.first().rank()),
                                 row.first().hasMagnitude() ? 1 : 0});
  }

  StagedDirectory staged(output_dir, "converted LoRA tensors", foreignToLoraTensors);
  const int64_t config_shape[] = {1, std::ssize(rows), 4};
  NpyWriter config_file(staged.path() / kLoraConfigFile, DType::kInt32, config_shape);
  config_file.append(std::as_bytes(std::span(config)));
  config_file.finish();
  const int64_t weights_shape[] = {1, std::ssize(rows), static_cast<int64_t>(longest)};
  NpyWriter weights_file(staged.path() / kLoraWeightsFile, storage, weights_shape);
  RowWriter packer(adapter, storage, longest);
  for (const Row& row : rows) weights_file.append(packer.pack(row));
  weights_file.finish();
  staged.publish();
  return {std::ssize(rows), static_cast<int64_t>(longest), adapter.uses_dora && !adapter.is_normalised};
}

}  // namespace chorus
