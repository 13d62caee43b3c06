#include "convert/dora_normalize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/staged_directory.h"
#include "convert/peft_modules.h"
#include "convert/tensor_copy.h"
#include "formats/huggingface_files.h"
#include "formats/safetensors.h"
#include "lora/adapter_builder.h"
#include "lora/peft_files.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightsFile = "adapter_model.safetensors";

class BaseWeights {
 public:
  BaseWeights(const fs::path& dir, bool transposed) : source_(HuggingFaceFiles::open(dir)), transposed_(transposed) {}

  // The base weight of a module: [out, in], or [in, out] if the adapter's base is transposed (fan_in_fan_out).
  const TensorView& of(const PeftModule& module) const {
    for (const std::string& name : names(module.name)) {
      const TensorView* tensor = source_.find(name);
      if (tensor == nullptr) continue;
      std::vector<int64_t> shape = {module.out(), module.in()};
      if (transposed_) std::reverse(shape.begin(), shape.end());
      if (tensor->shape != shape) {
        fail(ErrorCode::kCorrupt,
             "{}: tensor '{}' has shape {}, the adapter's '{}' asks for {}; it is of another model",
             source_.fileOf(name), name, shapeText(tensor->shape), module.name, shapeText(shape));
      }
      if (!isConvertible(tensor->dtype)) {
        fail(ErrorCode::kUnsupported, "{}: tensor '{}' is {}; the base model's own weights are needed, not quantised",
             source_.fileOf(name), name, dtypeName(tensor->dtype));
      }
      return *tensor;
    }
    fail(ErrorCode::kNotFound, "{}: no tensor '{}.weight', which the adapter adapts; it is of another model",
         source_.fileOf(""), module.name);
  }

 private:
  // Possible names of the base weight. A base model's files may omit the model's own name ("model."), or have it where
  // the adapter does not. A tied output head is stored as the embedding.
  static std::vector<std::string> names(const std::string& module) {
    std::vector<std::string> found = {module + ".weight"};
    const size_t dot = module.find('.');
    if (dot != std::string::npos) found.push_back(module.substr(dot + 1) + ".weight");
    found.push_back("model." + module + ".weight");
    found.push_back("transformer." + module + ".weight");
    if (module == "lm_head") found.emplace_back("model.embed_tokens.weight");
    return found;
  }

  HuggingFaceFiles source_;
  bool transposed_;
};

// Reads rows of a tensor, which may be unaligned, as float32.
class RowReader {
 public:
  RowReader(const TensorView& tensor, bool transposed) : tensor_(tensor), transposed_(transposed) {}

  void read(int64_t row, std::span<float> values) {
    const size_t size = dtypeSize(tensor_.dtype);
    gathered_.resize(values.size() * size);
    const std::byte* data = tensor_.bytes.data();
    if (transposed_) {
      const auto step = static_cast<size_t>(tensor_.shape[1]) * size;
      const std::byte* from = data + static_cast<size_t>(row) * size;
      for (size_t i = 0; i < values.size(); ++i, from += step) std::memcpy(gathered_.data() + i * size, from, size);
    } else {
      std::memcpy(gathered_.data(), data + static_cast<size_t>(row) * gathered_.size(), gathered_.size());
    }
    convertElements(gathered_.data(), tensor_.dtype, values.data(), DType::kFloat32, values.size());
  }

 private:
  const TensorView& tensor_;
  bool transposed_;
  std::vector<std::byte> gathered_;
};

std::vector<float> normalised(const PeftModule& module, const TensorView& base, bool transposed, ThreadPool& pool) {
  std::vector<float> magnitude = toFloats(module.magnitude);
  const std::vector<float> a = toFloats(module.a);
  const std::vector<float> b = toFloats(module.b);
  const auto in = static_cast<size_t>(module.in());
  const auto rank = static_cast<size_t>(module.rank());
  // Rows of one task, so that a buffer is allocated once for many rows.
  constexpr int64_t kRun = 64;
  pool.run((module.out() + kRun - 1) / kRun, [&](int64_t run, int /*thread*/) {
    RowReader reader(base, transposed);
    std::vector<float> row(in);
    for (int64_t o = run * kRun; o < std::min(module.out(), (run + 1) * kRun); ++o) {
      reader.read(o, row);
      for (size_t r = 0; r < rank; ++r) {
        const float factor = module.scale * b[static_cast<size_t>(o) * rank + r];
        const float* a_row = a.data() + r * in;
        for (size_t i = 0; i < in; ++i) row[i] += factor * a_row[i];
      }
      double sum = 0;
      for (const float x : row) sum += static_cast<double>(x) * x;
      magnitude[static_cast<size_t>(o)] /= static_cast<float>(std::sqrt(sum));
    }
  });
  const auto bad = std::find_if_not(magnitude.begin(), magnitude.end(), [](float m) { return std::isfinite(m); });
  if (bad != magnitude.end()) {
    fail(ErrorCode::kCorrupt, "'{}': row {} of the base weight and the adapter's part together has no finite norm",
         module.name, bad - magnitude.begin());
  }
  return magnitude;
}

// An entry of `dir` which is not of a result of this program, that may be replaced. A directory with the same files but
// without the mark and with another configuration holds an adapter as it was trained, perhaps the only copy.
std::optional<std::string> foreignToNormalisedAdapter(const fs::path& dir, const Json& config) {
  const auto foreign = firstForeignEntry(dir, [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name == kPeftConfigFile || name == kWeightsFile;
  });
  if (foreign) return foreign;
  if (!fs::exists(dir / kPeftConfigFile)) return kWeightsFile;
  const Json earlier = readJsonFile(dir / kPeftConfigFile);
  const bool own = earlier == config || (earlier.is_object() && earlier.value(kNormalisedField, Json()) == true);
  return own ? std::nullopt : std::optional<std::string>(kPeftConfigFile);
}

void writeWeights(const PeftModules& adapter, const BaseWeights& base, bool transposed, bool with_magnitudes,
                  const fs::path& path) {
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const PeftModule& module : adapter.modules) {
    declarations.push_back({module.peftKey(module.key_a), module.a.dtype, module.a.shape});
    declarations.push_back({module.peftKey(module.key_b), module.b.dtype, module.b.shape});
    if (with_magnitudes)
      declarations.push_back({module.peftKey(module.key_magnitude), DType::kFloat32, {module.out()}});
  }
  SafetensorsWriter writer(path, declarations);
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  for (const PeftModule& module : adapter.modules) {
    writer.write(module.peftKey(module.key_a), 0, module.a.bytes);
    writer.write(module.peftKey(module.key_b), 0, module.b.bytes);
    if (!with_magnitudes) continue;
    const std::vector<float> magnitude = normalised(module, base.of(module), transposed, pool);
    writer.write(module.peftKey(module.key_magnitude), 0, std::as_bytes(std::span(magnitude)));
  }
  writer.finish();
}
}  // namespace

DoraNormalisation normaliseDora(const fs::path& adapter_dir, const fs::path& base_dir, const fs::path& output_dir,
                                bool strip) {
  PeftModules adapter = readPeftModules(adapter_dir);
  if (adapter.is_normalised) {
    fail(ErrorCode::kInvalidArgument, "{}: its magnitudes are normalised already; give the adapter as it was trained",
         adapter.config_source);
  }
  const bool transposed = adapter.config.value("fan_in_fan_out", false);
  const BaseWeights base(base_dir, transposed);
  const bool with_magnitudes = adapter.uses_dora && !strip;
  if (with_magnitudes) adapter.config[kNormalisedField] = true;
  if (adapter.uses_dora && strip) adapter.config["use_dora"] = false;

  StagedDirectory staged(output_dir, "a normalised adapter",
                         [&](const fs::path& dir) { return foreignToNormalisedAdapter(dir, adapter.config); });
  writeFileAtomically(staged.path() / kPeftConfigFile, adapter.config.dump(2) + "\n");
  writeWeights(adapter, base, transposed, with_magnitudes, staged.path() / kWeightsFile);
  staged.publish();
  return {std::ssize(adapter.modules), adapter.uses_dora};
}

}  // namespace chorus
