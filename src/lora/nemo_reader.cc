#include "lora/nemo_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/background_throttle.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/zero_memory.h"
#include "lora/adapter_builder.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

struct NemoName {
  std::string_view module;  // after the layer's number and "adapter_layer."
  int32_t module_id;
  bool reads_shards = false;  // the linear's input is cut over the ranks: A is cut along the input
};
constexpr NemoName kNames[] = {{"self_attention.lora_kqv_adapter", kAttnQkv},
                               {"self_attention.lora_unfused_kqv_adapter.q_adapter", kAttnQ},
                               {"self_attention.lora_unfused_kqv_adapter.k_adapter", kAttnK},
                               {"self_attention.lora_unfused_kqv_adapter.v_adapter", kAttnV},
                               {"self_attention.lora_dense_attention_adapter", kAttnDense, true},
                               {"mlp.lora_hto4h_adapter", kMlpHTo4H},
                               {"mlp.lora_unfused_hto4h_adapter.gate_adapter", kMlpHTo4H},
                               {"mlp.lora_unfused_hto4h_adapter.up_adapter", kMlpGate},
                               {"mlp.lora_4htoh_adapter", kMlp4HToH, true}};
constexpr std::string_view kFusedFc = "mlp.lora_hto4h_adapter";

struct NemoKey {
  const NemoName* name = nullptr;
  int32_t layer = 0;  // within the pipeline stage
  bool is_a = false;
  std::string module;  // the tensor's name without ".linear_in.weight"
};

std::optional<NemoKey> parseNemoKey(std::string_view tensor) {
  NemoKey key;
  std::string_view rest = tensor;
  for (const bool is_a : {true, false}) {
    const std::string_view end = is_a ? ".linear_in.weight" : ".linear_out.weight";
    if (!rest.ends_with(end)) continue;
    key.is_a = is_a;
    rest.remove_suffix(end.size());
    key.module = rest;
    constexpr std::string_view kLayers = "layers.";
    const size_t at = rest.find(kLayers);
    if (at == std::string_view::npos || (at > 0 && rest[at - 1] != '.')) return std::nullopt;
    rest.remove_prefix(at + kLayers.size());
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), key.layer);
    if (error != std::errc() || key.layer < 0 || stop == rest.data() + rest.size() || *stop != '.') return std::nullopt;
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()) + 1);
    std::string module(rest);
    constexpr std::string_view kAdapterLayer = ".adapter_layer.";
    if (const size_t found = module.find(kAdapterLayer); found != std::string::npos) {
      module.replace(found, kAdapterLayer.size(), ".");
    }
    const auto name = std::ranges::find(kNames, std::string_view(module), &NemoName::module);
    if (name == std::end(kNames)) return std::nullopt;
    key.name = name;
    return key;
  }
  return std::nullopt;
}

int64_t positive(const Json& config, const char* key, std::string_view source) {
  const auto value = jsonGet<int64_t>(config, key, source);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (value < 1 || value > kMost) fail(ErrorCode::kInvalidArgument, "{}: '{}' is {}", source, key, value);
  return value;
}
int64_t positiveOr(const Json& config, const char* key, int64_t fallback, std::string_view source) {
  const auto it = config.find(key);
  return it == config.end() || it->is_null() ? fallback : positive(config, key, source);
}

const Json& loraTuning(const Json& config, std::string_view source) {
  static const Json none = Json::object();
  const auto peft = config.find("peft");
  if (peft == config.end() || peft->is_null()) return none;
  if (!peft->is_object()) fail(ErrorCode::kInvalidArgument, "{}: 'peft' must be a map", source);
  const auto scheme = jsonGetOr<std::string>(*peft, "peft_scheme", "lora", source);
  if (scheme != "lora" && scheme != "qlora") {
    fail(ErrorCode::kUnsupported, "{}: 'peft.peft_scheme' {} is not supported; only lora is", source, scheme);
  }
  const auto tuning = peft->find("lora_tuning");
  if (tuning == peft->end() || tuning->is_null()) return none;
  if (!tuning->is_object()) fail(ErrorCode::kInvalidArgument, "{}: 'peft.lora_tuning' must be a map", source);
  return *tuning;
}

class NemoReader {
 public:
  NemoReader(const NemoFiles& files, const NemoShape& shape, BackgroundThrottle* throttle)
      : files_(files), shape_(shape), throttle_(throttle) {
    uint64_t total = 0;
    for (const TensorFile& shard : files_.shards) total += shard.fileBytes().size();
    most_copied_ = 2 * total + kFreeBytes;
    most_read_ = total + kFreeBytes;
  }

  NemoModules read() {
    readConfig();
    collect();
    for (const Found& module : found_) join(module);
    return std::move(result_);
  }

 private:
  // Number of bytes that may be read, and copied, beyond the size of the checkpoints. Without these limits the work
  // would have no bound, because any number of tensors of a checkpoint may have the same bytes.
  static constexpr uint64_t kFreeBytes = 1 << 16;

  struct Found {
    NemoKey key;
    int32_t pp_rank = 0;
    std::string a, b;  // names of the tensors; empty while they have not been seen
  };

  [[noreturn]] void refuse(const std::string& tensor, std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", files_.source, tensor, reason);
  }

  void readConfig() {
    const Json& tuning = loraTuning(files_.config, files_.config_source);
    const auto field = [&](const char* name) {
      return fmt::format("{}: 'peft.lora_tuning.{}'", files_.config_source, name);
    };
    if (jsonGetOr(tuning, "weight_tying", false, files_.config_source)) {
      fail(ErrorCode::kUnsupported, "{} is set; layers that share an adapter are not supported", field("weight_tying"));
    }
    const auto variant = jsonGetOr<std::string>(tuning, "variant", "nemo", files_.config_source);
    if (variant != "nemo" && variant != "canonical") {
      fail(ErrorCode::kUnsupported, "{} {} is not supported; nemo and canonical are", field("variant"), variant);
    }
    dim_ = positiveOr(tuning, "adapter_dim", 0, files_.config_source);
    if (!tuning.contains("alpha") || tuning["alpha"].is_null()) return;
    if (dim_ == 0) fail(ErrorCode::kInvalidArgument, "{} is missing", field("adapter_dim"));
    const auto alpha = jsonGet<double>(tuning, "alpha", files_.config_source);
    result_.scale = static_cast<float>(alpha / static_cast<double>(dim_));
    if (!(alpha > 0) || !std::isfinite(result_.scale) || result_.scale == 0) {
      fail(ErrorCode::kInvalidArgument, "{} is {}; it must be above 0", field("alpha"), alpha);
    }
  }

  // Number of the stage's first layer.
  int64_t firstLayer(int32_t pp_rank) const {
    if (files_.pp_size == 1) return 0;
    const int64_t layers = positive(files_.config, "num_layers", files_.config_source);
    if (layers % files_.pp_size != 0) {
      fail(ErrorCode::kInvalidArgument, "{}: 'num_layers' {} is not divisible by the {} pipeline stages",
           files_.config_source, layers, files_.pp_size);
    }
    if (positiveOr(files_.config, "virtual_pipeline_model_parallel_size", 1, files_.config_source) != 1) {
      fail(ErrorCode::kUnsupported, "{}: 'virtual_pipeline_model_parallel_size' is not supported",
           files_.config_source);
    }
    return layers / files_.pp_size * pp_rank;
  }

  const TensorFile& shard(int32_t pp_rank, int32_t tp_rank) const {
    return files_
        .shards[static_cast<size_t>(pp_rank) * static_cast<size_t>(files_.tp_size) + static_cast<size_t>(tp_rank)];
  }

  void collect() {
    for (int32_t pp = 0; pp < files_.pp_size; ++pp) {
      std::map<std::string, size_t> index;
      for (const std::string& tensor : shard(pp, 0).names()) {
        // Transformer Engine's state, which has no weights.
        if (tensor.ends_with("._extra_state")) continue;
        auto key = parseNemoKey(tensor);
        if (!key) {
          refuse(tensor, "is no linear_in or linear_out of a LoRA adapter of a numbered layer's attention or MLP");
        }
        const auto [it, is_new] = index.emplace(key->module, found_.size());
        if (is_new) found_.push_back({.key = *key, .pp_rank = pp});
        (key->is_a ? found_[it->second].a : found_[it->second].b) = tensor;
      }
      // tensorsOf() finds what a later rank lacks.
      for (int32_t tp = 1; tp < files_.tp_size; ++tp) {
        for (const std::string& tensor : shard(pp, tp).names()) {
          if (!tensor.ends_with("._extra_state") && shard(pp, 0).find(tensor) == nullptr) {
            refuse(tensor, "is missing in the checkpoint of tensor-parallel rank 0");
          }
        }
      }
    }
    if (found_.empty()) fail(ErrorCode::kCorrupt, "{}: no LoRA tensors", files_.source);
  }

  // The tensor of every rank of the stage; all have the shape and the dtype of the first.
  std::vector<const TensorView*> tensorsOf(const Found& module, const std::string& name) {
    std::vector<const TensorView*> views;
    for (int32_t tp = 0; tp < files_.tp_size; ++tp) {
      const TensorView* view = shard(module.pp_rank, tp).find(name);
      if (view == nullptr) refuse(name, fmt::format("is missing in the checkpoint of tensor-parallel rank {}", tp));
      if (view->shape.size() != 2 || view->shape[0] < 1 || view->shape[1] < 1) {
        refuse(name, fmt::format("has shape {}; expected a matrix", shapeText(view->shape)));
      }
      if (!isAdapterDType(view->dtype)) {
        refuse(name, fmt::format("is {}; float32, float16, bfloat16 and float64 are read", dtypeName(view->dtype)));
      }
      if (view->shape != shard(module.pp_rank, 0).find(name)->shape ||
          view->dtype != shard(module.pp_rank, 0).find(name)->dtype) {
        refuse(name, "has another shape or type in the checkpoint of another rank");
      }
      if (files_.hasValues()) {
        charge(read_, most_read_, view->bytes.size(), name);
        if (!allFinite(view->bytes, view->dtype, throttle_)) {
          refuse(name, "holds values that are not finite; train or save it again");
        }
      }
      views.push_back(view);
    }
    return views;
  }

  void charge(uint64_t& used, uint64_t most, uint64_t bytes, const std::string& tensor) const {
    if (bytes > most - used)
      refuse(tensor, "shares its values with others, and together they are larger than the archive");
    used += bytes;
  }

  std::span<std::byte> allocate(uint64_t bytes, const std::string& tensor) {
    charge(copied_, most_copied_, bytes, tensor);
    auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    result_.storage.push_back(memory);
    return *memory;
  }

  // Joins matrices along their rows.
  TensorView joinRows(const std::vector<const TensorView*>& parts, const std::string& tensor) {
    if (parts.size() == 1) return onlyShape(*parts[0]);
    TensorView joined = {parts[0]->dtype, parts[0]->shape, {}};
    joined.shape[0] =
        static_cast<int64_t>(checkedMul(static_cast<uint64_t>(joined.shape[0]), parts.size(), tensor.c_str()));
    if (!files_.hasValues()) return joined;
    const auto out = allocate(parts[0]->bytes.size() * parts.size(), tensor);
    size_t at = 0;
    for (const TensorView* part : parts) {
      std::memcpy(out.data() + at, part->bytes.data(), part->bytes.size());
      at += part->bytes.size();
      chargeThrottle(throttle_, part->bytes.size());
    }
    joined.bytes = out;
    return joined;
  }

  // Joins matrices along their columns.
  TensorView joinColumns(const std::vector<const TensorView*>& parts, const std::string& tensor) {
    if (parts.size() == 1) return onlyShape(*parts[0]);
    TensorView joined = {parts[0]->dtype, parts[0]->shape, {}};
    const size_t row_bytes = static_cast<size_t>(parts[0]->shape[1]) * dtypeSize(joined.dtype);
    joined.shape[1] =
        static_cast<int64_t>(checkedMul(static_cast<uint64_t>(joined.shape[1]), parts.size(), tensor.c_str()));
    if (!files_.hasValues()) return joined;
    const auto out = allocate(parts[0]->bytes.size() * parts.size(), tensor);
    std::byte* to = out.data();
    for (size_t row = 0; row < static_cast<size_t>(joined.shape[0]); ++row) {
      for (const TensorView* part : parts) {
        std::memcpy(to, part->bytes.data() + row * row_bytes, row_bytes);
        to += row_bytes;
      }
      chargeThrottle(throttle_, row_bytes * parts.size());
    }
    joined.bytes = out;
    return joined;
  }

  TensorView onlyShape(const TensorView& view) const {
    return files_.hasValues() ? view : TensorView{view.dtype, view.shape, {}};
  }

  // Runs of rows of `matrix` in another order. Each run is (first row, number of rows).
  TensorView reordered(const TensorView& matrix, std::span<const std::pair<int64_t, int64_t>> runs,
                       const std::string& tensor) {
    if (!files_.hasValues() || runs.size() < 2) return matrix;
    const size_t row_bytes = static_cast<size_t>(matrix.shape[1]) * dtypeSize(matrix.dtype);
    const auto out = allocate(matrix.bytes.size(), tensor);
    std::byte* to = out.data();
    for (const auto& [first, count] : runs) {
      const size_t size = static_cast<size_t>(count) * row_bytes;
      std::memcpy(to, matrix.bytes.data() + static_cast<size_t>(first) * row_bytes, size);
      to += size;
      chargeThrottle(throttle_, size);
    }
    return {matrix.dtype, matrix.shape, out};
  }

  TensorView withQkvInOrder(const TensorView& b, const std::string& tensor) {
    const int64_t d = shape_.head_size, groups = shape_.kv_heads;
    const int64_t queries = shape_.heads / groups * d, group = queries + 2 * d;
    if (static_cast<uint64_t>(b.shape[0]) !=
        checkedMul(static_cast<uint64_t>(groups), static_cast<uint64_t>(group), "the rows of query, key and value")) {
      refuse(tensor,
             fmt::format("has {} rows in all, but {} query heads and {} KV heads of size {} have {}; the adapter is "
                         "of another model",
                         b.shape[0], shape_.heads, groups, d, groups * group));
    }
    if (groups == 1) return b;
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (const auto& [begin, count] : {std::pair(int64_t{0}, queries), {queries, d}, {queries + d, d}}) {
      for (int64_t i = 0; i < groups; ++i) runs.emplace_back(i * group + begin, count);
    }
    return reordered(b, runs, tensor);
  }

  // Each rank has its rows of both halves of a gated linear. Puts the activated halves of all ranks first.
  TensorView withHalvesInOrder(const TensorView& b, const std::string& tensor) {
    const int64_t half = b.shape[0] / files_.tp_size / 2;
    std::vector<std::pair<int64_t, int64_t>> runs;
    if (files_.tp_size > 1) {
      for (const int64_t begin : {int64_t{0}, half}) {
        for (int32_t tp = 0; tp < files_.tp_size; ++tp) runs.emplace_back(2 * half * tp + begin, half);
      }
    }
    return reordered(b, runs, tensor);
  }

  void join(const Found& found) {
    if (found.a.empty() || found.b.empty()) {
      refuse(found.a.empty() ? found.b : found.a,
             fmt::format("belongs to a module whose {} is missing", found.a.empty() ? "linear_in" : "linear_out"));
    }
    NemoModule module = {.module_id = found.key.name->module_id, .name = found.key.module};
    const int64_t layer = firstLayer(found.pp_rank) + found.key.layer;
    if (layer > std::numeric_limits<int32_t>::max()) refuse(found.a, "belongs to a layer beyond every model's");
    module.layer = static_cast<int32_t>(layer);
    const auto a = tensorsOf(found, found.a);
    module.a = found.key.name->reads_shards ? joinColumns(a, found.a) : joinRows(a, found.a);
    module.b = joinRows(tensorsOf(found, found.b), found.b);
    const int64_t rank = module.a.shape[0];
    if (module.b.shape[1] != rank) {
      refuse(found.b, fmt::format("has {} columns, but the adapter's linear_in has {} rows", module.b.shape[1], rank));
    }
    if (dim_ != 0 && dim_ != rank) {
      refuse(found.a, fmt::format("has rank {}, but 'peft.lora_tuning.adapter_dim' is {}", rank, dim_));
    }
    if (module.module_id == kAttnQkv) module.b = withQkvInOrder(module.b, found.b);
    if (found.key.name->module == kFusedFc && module.b.shape[0] == 2 * shape_.intermediate_size) {
      module.module_id = kMlpGateUp;
      module.b = withHalvesInOrder(module.b, found.b);
    }
    result_.modules.push_back(std::move(module));
  }

  const NemoFiles& files_;
  const NemoShape& shape_;
  BackgroundThrottle* throttle_;
  std::vector<Found> found_;
  int64_t dim_ = 0;                                                   // 0: the config does not say it
  uint64_t most_read_ = 0, most_copied_ = 0, read_ = 0, copied_ = 0;  // bytes
  NemoModules result_;
};

// Refuses a config with another shape than the model's, because the order of the rows depends on the shape.
void checkSameShape(const NemoFiles& files, const ModelConfig& model) {
  const auto check = [&](const char* key, int64_t of_model) {
    const int64_t said = positiveOr(files.config, key, of_model, files.config_source);
    if (said == of_model) return;
    fail(ErrorCode::kCorrupt, "{}: '{}' is {}, but the model has {}; the adapter is of another model",
         files.config_source, key, said, of_model);
  };
  check("num_attention_heads", model.num_attention_heads);
  check("num_query_groups", model.num_key_value_heads);
  check("kv_channels", model.head_size);
  check("hidden_size", model.hidden_size);
}

}  // namespace

NemoShape NemoShape::of(const Json& config, std::string_view source) {
  NemoShape shape;
  shape.heads = positive(config, "num_attention_heads", source);
  shape.kv_heads = positiveOr(config, "num_query_groups", shape.heads, source);
  if (shape.heads % shape.kv_heads != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: 'num_attention_heads' {} is not divisible by 'num_query_groups' {}", source,
         shape.heads, shape.kv_heads);
  }
  const int64_t hidden = positive(config, "hidden_size", source);
  shape.head_size = positiveOr(config, "kv_channels", std::max<int64_t>(hidden / shape.heads, 1), source);
  shape.intermediate_size = positiveOr(config, "ffn_hidden_size", 4 * hidden, source);
  return shape;
}

NemoShape NemoShape::of(const ModelConfig& config) {
  return {config.num_attention_heads, config.num_key_value_heads, config.head_size, config.intermediate_size};
}

NemoModules readNemoModules(const NemoFiles& files, const NemoShape& shape, BackgroundThrottle* throttle) {
  return NemoReader(files, shape, throttle).read();
}

Adapter readNemoAdapter(const NemoFiles& files, std::string name, const AdapterTarget& target) {
  checkSameShape(files, target.config);
  NemoModules read = readNemoModules(files, NemoShape::of(target.config), target.throttle);
  AdapterBuilder builder(std::move(name), target.throttle);
  builder.keep(files.memory);
  for (const TensorFile& shard : files.shards) builder.keep(shard.keepAlive());
  for (auto& memory : read.storage) builder.keep(std::move(memory));
  if (!files.hasValues()) {
    uint64_t longest = 0;
    for (const NemoModule& module : read.modules) {
      for (const TensorView* view : {&module.a, &module.b}) {
        longest = std::max(longest, checkedElementCount(view->shape, module.name.c_str()));
      }
    }
    const auto zeros = std::make_shared<const ZeroMemory>(
        checkedAdd(checkedMul(longest, sizeof(float), "the adapter"), 1, "the adapter"));
    builder.keep(zeros);
    builder.takeShapesOnly(zeros->bytes().data());
  }
  std::set<std::pair<int32_t, int32_t>> placed;
  for (const NemoModule& module : read.modules) {
    const auto refuse = [&](std::string_view reason) {
      fail(ErrorCode::kCorrupt, "{}: the module '{}' {}", files.source, module.name, reason);
    };
    if (module.layer >= target.config.num_hidden_layers) {
      refuse(fmt::format("belongs to layer {}, but the model has {} layers; the adapter is of another model",
                         module.layer, target.config.num_hidden_layers));
    }
    const std::vector<ModulePlace> places = findModulesOfId(target.table, module.module_id, module.layer);
    if (places.empty() || places.front().row->experts > 0) {
      refuse(fmt::format("adapts no module of {} that takes adapters; those are {}", target.config.architecture,
                         moduleNames(target.table)));
    }
    const int64_t rank = module.a.shape[0], in = places.front().in();
    if (target.max_rank > 0 && rank > target.max_rank) {
      refuse(fmt::format("has rank {}, above the maximum of {}; raise --max_lora_rank", rank, target.max_rank));
    }
    int64_t out = 0;
    for (const ModulePlace& place : places) out += place.out();
    if (module.a.shape[1] != in || module.b.shape[0] != out) {
      refuse(fmt::format("has {} inputs and {} outputs, expected {} and {}; the adapter is of another model",
                         module.a.shape[1], module.b.shape[0], in, out));
    }
    const size_t row_bytes = static_cast<size_t>(rank) * dtypeSize(module.b.dtype);
    size_t at = 0;
    for (const ModulePlace& place : places) {
      if (!placed.emplace(module.layer, place.target->module_id).second) {
        refuse("adapts the same weights as another module of the adapter");
      }
      const size_t size = static_cast<size_t>(place.out()) * row_bytes;
      const TensorView b = {module.b.dtype,
                            {place.out(), rank},
                            module.b.bytes.empty() ? module.b.bytes : module.b.bytes.subspan(at, size)};
      at += size;
      builder.add({.module_id = place.target->module_id,
                   .module_name = place.target->module_name,
                   .layer = module.layer,
                   .rank = rank,
                   .in = in,
                   .out = place.out(),
                   .scale = read.scale},
                  module.a, b);
    }
  }
  std::string hash;
  if (files.hasValues()) {
    Sha256 sha(target.throttle);
    sha.update("nemo ");
    sha.update(files.bytes);
    hash = sha.hex();
  }
  return builder.finish(std::move(hash));
}

}  // namespace chorus
