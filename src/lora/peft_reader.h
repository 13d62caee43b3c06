// Reads adapters that Hugging Face's PEFT saved: a directory of adapter_config.json and adapter_model.safetensors, or
// adapter_model.bin when there is no safetensors file.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"
#include "lora/adapter.h"
#include "lora/peft_files.h"

namespace chorus {

class BackgroundThrottle;

// The model that adapters are checked against, and the throttle under which they are read.
struct AdapterTarget {
  const ModelConfig& config;
  const WeightTable& table;  // the table of `config`
  int64_t max_rank = 0;      // the engine's limit (--max_lora_rank); 0: no limit
  // Patterns (fnmatch) of modules that are not served, such as the image encoder of a model that is served as its text
  // model. An adapter may have tensors of these modules, which are not read.
  std::span<const std::string> left_out = {};
  BackgroundThrottle* throttle = nullptr;  // is charged for all work on values; null: none
};

// Reads LoRA, rsLoRA and DoRA adapters. Both files are read in one state of the directory (peft_files.h). Throws Error
// with one line that names the file, field or tensor and what was expected: a missing file, an unsupported field
// (peft_config.h), a module, shape or layer that the model does not have, A without B, a rank above the maximum, values
// that are not finite.
Adapter readPeftAdapter(const std::filesystem::path& dir, std::string name, const AdapterTarget& target);

// When the values of the files were not read (readPeftHeaders), the adapter has only shapes and no check of values is
// made.
Adapter readPeftAdapter(const PeftFiles& files, std::string name, const AdapterTarget& target);

// Reports what readPeftAdapter() would do with each tensor.
struct PeftInspection {
  struct Tensor {
    std::string name;
    enum class Verdict { kUsed, kLeftOut, kRefused } verdict = Verdict::kUsed;
    std::string target;  // the checkpoint's tensors that it changes, separated by ", "; empty if it is not used
    std::string reason;  // of a refusal
  };
  std::vector<Tensor> tensors;  // in the order of the file
  std::string error;            // of the first refusal, which may be of no tensor; empty: the adapter is accepted
};
// Checks every tensor, also after one that is refused. Throws Error if the configuration is refused.
PeftInspection inspectPeftAdapter(const PeftFiles& files, const AdapterTarget& target);

// Reads from the contents of the two files. The memory behind the tensor views is kept alive by `weights`, or else by
// the caller.
Adapter readPeftAdapter(std::string_view config_text, std::string_view config_source, const TensorFile& weights,
                        std::string name, const AdapterTarget& target);

}  // namespace chorus
