// Adapters as Hugging Face's PEFT saves them: a directory of adapter_config.json and
// adapter_model.safetensors, else adapter_model.bin.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"
#include "lora/adapter.h"
#include "lora/peft_files.h"

namespace chorus {

// The model that adapters are checked against.
struct AdapterTarget {
  const ModelConfig& config;
  const WeightTable& table;  // of config
  int64_t max_rank = 0;      // of the engine (--max_lora_rank); 0: any
};

// LoRA, rsLoRA and DoRA. Both files are of one state of the directory (peft_files.h). Throws Error with one line that
// names file, field or tensor and what is expected: a missing file, a field that asks for something else
// (peft_config.h), a module, shape or layer that the model does not have, A without B, a rank above the maximum, values
// that are not finite.
Adapter readPeftAdapter(const std::filesystem::path& dir, std::string name, const AdapterTarget& target);

// What a directory held when it was read before. Files in these states have this content: the time of a file's last
// change is not its writer's to set.
struct KnownPeftContent {
  std::vector<FileStamp> stamps;  // PeftFiles::stamps
  std::string content_hash;
};

// Of files in the known state the hash is taken over, not computed again. Of files whose values were not read
// (readPeftHeaders) the adapter has shapes alone, and nothing about values is checked.
Adapter readPeftAdapter(const PeftFiles& files, std::string name, const AdapterTarget& target,
                        const KnownPeftContent& known = {});

// The same from the two files' contents; weights keep what their views point into alive or the caller does.
Adapter readPeftAdapter(std::string_view config_text, std::string_view config_source, const TensorFile& weights,
                        std::string name, const AdapterTarget& target);

}  // namespace chorus
