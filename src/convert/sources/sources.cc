#include "convert/sources/sources.h"

#include <algorithm>
#include <array>
#include <string>
#include <system_error>

#include "base/error.h"
#include "checkpoint/names.h"
#include "convert/sources/checkpoint.h"
#include "convert/sources/config_file.h"
#include "convert/sources/deepspeed.h"
#include "convert/sources/huggingface.h"
#include "convert/sources/jax.h"
#include "convert/sources/nemo.h"
#include "lora/adapter_files.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

bool isThere(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Whether the directory has an entry for which test(name) is true.
template <typename F>
bool anyEntry(const fs::path& dir, F&& test) {
  std::error_code ignored;
  for (auto entry = fs::directory_iterator(dir, ignored); !ignored && entry != fs::directory_iterator();
       entry.increment(ignored)) {
    if (test(entry->path().filename().string())) return true;
  }
  return false;
}

bool hasEnding(const fs::path& dir, std::string_view ending) {
  return anyEntry(dir, [&](const std::string& name) { return name.ends_with(ending); });
}

// PyTorch's distributed checkpoints, which Megatron core calls torch_dist: files *.distcp beside .metadata. NeMo keeps
// them in the directory model_weights or weights.
bool isTorchDistributed(const fs::path& dir) {
  for (const char* below : {"", "model_weights", "weights"}) {
    if (hasEnding(dir / below, ".distcp")) return true;
  }
  return false;
}

// A directory for each tensor, which holds the tensor as a zarr array.
bool isZarr(const fs::path& dir) {
  for (const char* below : {"", "model_weights", "weights"}) {
    const fs::path tensors = dir / below;
    if (isThere(tensors / ".zarray") || isThere(tensors / ".zgroup")) return true;
    if (anyEntry(tensors, [&](const std::string& name) { return isThere(tensors / name / ".zarray"); })) return true;
  }
  return false;
}

bool isOrbax(const fs::path& dir) {
  const auto holds = [](const fs::path& path) {
    return isThere(path / "_CHECKPOINT_METADATA") || isThere(path / "_METADATA") || isThere(path / "manifest.ocdbt") ||
           anyEntry(path, [](const std::string& name) { return name.starts_with("ocdbt.process_"); });
  };
  return holds(dir) || anyEntry(dir, [&](const std::string& name) { return holds(dir / name); });
}

// Models that are known but have no reader.
struct UnsupportedSource {
  std::string_view kind;
  std::string_view advice;
  bool (*recognises)(const fs::path& path);
};
constexpr std::array kUnsupported = {
    UnsupportedSource{"an engine, not a model", "run it or serve it with --engine_dir",
                      [](const fs::path& path) { return configHas(path, "pretrained_config"); }},
    UnsupportedSource{"a PEFT adapter, not a model", "give its base model, and the adapter with --lora_dir",
                      [](const fs::path& path) { return isThere(path / "adapter_config.json"); }},
    UnsupportedSource{"a distributed PyTorch checkpoint (torch_dist, *.distcp)",
                      "export it to a single .nemo file or to Hugging Face's format with the framework that wrote it",
                      isTorchDistributed},
    UnsupportedSource{"a distributed checkpoint of zarr arrays",
                      "export it to a single .nemo file or to Hugging Face's format with the framework that wrote it",
                      isZarr},
    UnsupportedSource{"an Orbax checkpoint", "export it to Hugging Face's format, or to an .npz file or flax msgpack",
                      isOrbax},
    UnsupportedSource{"a GGUF model", "download the safetensors files of the original model",
                      [](const fs::path& path) { return path.extension() == ".gguf" || hasEnding(path, ".gguf"); }},
    UnsupportedSource{"an ONNX model", "download the safetensors files of the original model",
                      [](const fs::path& path) { return path.extension() == ".onnx" || hasEnding(path, ".onnx"); }},
};

// The names of the subdirectories that hold adapters, sorted; empty if another one holds a model. A directory of
// adapters may be very large, so only the first entries count.
std::vector<std::string> adaptersIn(const fs::path& dir) {
  constexpr int kMostEntries = 1024;
  std::vector<std::string> names;
  int entries = 0;
  bool has_model = false;
  anyEntry(dir, [&](const std::string& name) {
    const fs::path held = dir / name;
    // A directory with an adapter_config.json may have the model's config beside it. Archives are not opened for this.
    const bool is_peft = isThere(held / kPeftConfigFile);
    const bool is_nemo = hasEnding(held, ".nemo");
    has_model = !is_peft && !is_nemo && findSourceReader(held) != nullptr;
    if (!name.starts_with('.') && (is_peft || (!is_nemo && !has_model && isAdapter(held)))) names.push_back(name);
    return has_model || ++entries == kMostEntries;
  });
  if (has_model) return {};
  std::ranges::sort(names);
  return names;
}
}  // namespace

std::string missingModelText(const fs::path& path) {
  std::string text = "no such file or directory";
  const std::string name = path.string();
  const size_t slash = name.find('/');
  const bool is_hub_name = slash != std::string::npos && slash > 0 && slash + 1 < name.size() &&
                           name.find('/', slash + 1) == std::string::npos && name.front() != '.' &&
                           name.front() != '~' && !isThere(path.parent_path());
  if (is_hub_name) text += "; models are not downloaded; give a local directory";
  return text;
}

std::span<const SourceReader> sourceReaders() {
  static const std::array readers = {checkpointReader(), deepSpeedReader(), jaxReader(), huggingFaceReader(),
                                     nemoReader()};
  return readers;
}

const SourceReader* findSourceReader(const fs::path& path) {
  for (const SourceReader& reader : sourceReaders()) {
    if (reader.recognises(path)) return &reader;
  }
  return nullptr;
}

void refuseUnsupportedSource(const fs::path& path) {
  for (const UnsupportedSource& source : kUnsupported) {
    if (!source.recognises(path)) continue;
    fail(ErrorCode::kUnsupported, "{}: {}, which is not supported; {}", path.string(), source.kind, source.advice);
  }
}

const SourceReader& sourceReaderOf(const fs::path& path) {
  if (!isThere(path)) fail(ErrorCode::kNotFound, "{}: {}", path.string(), missingModelText(path));
  if (const SourceReader* reader = findSourceReader(path)) return *reader;
  refuseUnsupportedSource(path);
  if (const std::vector<std::string> adapters = adaptersIn(path); !adapters.empty()) {
    fail(ErrorCode::kUnsupported,
         "{}: holds adapters ({}), not a model; serve them with --lora_dir beside their base model, or inspect one of "
         "them",
         path.string(), listSome(adapters));
  }
  std::string kinds;
  for (const SourceReader& reader : sourceReaders()) kinds.append(kinds.empty() ? "" : ", ").append(reader.kind);
  fail(ErrorCode::kNotFound, "{}: holds no model that is known ({}); most have a config.json", path.string(), kinds);
}

SourceModel openSource(const fs::path& path, const ConvertOptions& options) {
  return sourceReaderOf(path).open(path, options);
}

}  // namespace chorus
