#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "convert/sources/jax_arrays.h"

namespace chorus {
namespace {

constexpr std::string_view kTransformer = "transformer/";

// The name without what some checkpoints have before it.
std::string_view nameInTransformer(std::string_view name) {
  for (const std::string_view prefix : {std::string_view("rlx_networks/policy_network/"), kTransformer}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return name;
}

// "layer_3/mlp/linear" is the layer 3 and "mlp/linear".
std::optional<std::pair<int32_t, std::string_view>> nameInLayer(std::string_view name) {
  constexpr std::string_view kLayer = "layer_";
  if (!name.starts_with(kLayer)) return std::nullopt;
  name.remove_prefix(kLayer.size());
  int32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || layer < 0 || digits == name.size() || name[digits] != '/') return std::nullopt;
  return std::pair(layer, name.substr(digits + 1));
}

class GemmaNames {
 public:
  GemmaNames(const std::vector<JaxArray>& arrays, const AddJaxTensor& add) : arrays_(arrays), add_(add) {
    for (const JaxArray& array : arrays) {
      const std::string_view name = nameInTransformer(array.name);
      if (name == "embedder/input_embedding" && array.shape.size() == 2) hidden_ = array.shape[1];
      const auto in_layer = nameInLayer(name);
      if (!in_layer) continue;
      if (in_layer->second.starts_with("post_ffw_norm/")) norms_after_ = true;
      if (in_layer->second.starts_with("attn/_query_norm/")) query_norm_ = true;
    }
  }

  void addAll() {
    size_t left_out = 0;
    for (const JaxArray& array : arrays_) {
      array_ = &array;
      const std::string_view name = nameInTransformer(array.name);
      if (name.starts_with("SigLiP") || name.starts_with("siglip_encoder/") || name.starts_with("embedder/mm_")) {
        ++left_out;
      } else if (name == "embedder/input_embedding") {
        addPlain("model.embed_tokens.weight");
      } else if (name == "final_norm/scale") {
        addPlain("model.norm.weight");
      } else if (const auto in_layer = nameInLayer(name)) {
        prefix_ = fmt::format("model.layers.{}.", in_layer->first);
        addOfLayer(in_layer->second);
      } else {
        unknown();
      }
    }
    if (left_out > 0) log::info("{} arrays of the vision tower are left out", left_out);
  }

 private:
  [[noreturn]] void unknown() const {
    fail(ErrorCode::kUnsupported, "{}: array '{}' is none of DeepMind's Gemma", array_->file, array_->name);
  }
  [[noreturn]] void wrongShape(std::string_view expected) const {
    fail(ErrorCode::kCorrupt, "{}: array '{}' has shape {}, expected {}", array_->file, array_->name,
         shapeText(array_->shape), expected);
  }

  void addOfLayer(std::string_view name) {
    // Some checkpoints have the matrices of the MLP in a map, as those of the attention.
    if (name == "mlp/gating_einsum/w" || name == "mlp/linear/w") name.remove_suffix(2);
    const std::map<std::string_view, std::string_view> norms = {
        {"pre_attention_norm/scale", "input_layernorm"},
        {"post_attention_norm/scale", "post_attention_layernorm"},
        {"pre_ffw_norm/scale", norms_after_ ? "pre_feedforward_layernorm" : "post_attention_layernorm"},
        {"post_ffw_norm/scale", "post_feedforward_layernorm"},
        {"attn/_query_norm/scale", "self_attn.q_norm"},
        {"attn/_key_norm/scale", "self_attn.k_norm"}};
    if (const auto norm = norms.find(name); norm != norms.end()) {
      addPlain(fmt::format("{}{}.weight", prefix_, norm->second));
    } else if (name == "attn/q_einsum/w") {
      addHeads({"q_proj"});
    } else if (name == "attn/kv_einsum/w") {
      addHeads({"k_proj", "v_proj"});
    } else if (name == "attn/qkv_einsum/w") {
      addHeads({"q_proj", "k_proj", "v_proj"});
    } else if (name == "attn/attn_vec_einsum/w") {
      addOutput();
    } else if (name == "mlp/gating_einsum") {
      addGate();
    } else if (name == "mlp/linear") {
      if (array_->shape.size() != 2) wrongShape("[intermediate, hidden]");
      add_(prefix_ + "mlp.down_proj.weight", tensorOf(*array_, true), array_->file);
    } else {
      unknown();
    }
  }

  void addPlain(std::string name) { add_(std::move(name), tensorOf(*array_, false), array_->file); }

  // The elements, as one part.
  const TensorView& wholeArray() const {
    if (array_->parts.size() == 1) return array_->parts[0];
    fail(ErrorCode::kUnsupported, "{}: array '{}' is stored in chunks, which is not supported for this array",
         array_->file, array_->name);
  }

  // [heads, hidden, size] or [modules, heads, hidden, size] -> for each module [heads * size, hidden].
  void addHeads(const std::vector<std::string_view>& modules) {
    const size_t first = modules.size() > 1 ? 1 : 0;
    const std::vector<int64_t>& shape = array_->shape;
    if (shape.size() != first + 3 || (first == 1 && shape[0] != static_cast<int64_t>(modules.size()))) {
      wrongShape(first == 1 ? "[modules, heads, hidden, head size]" : "[heads, hidden, head size]");
    }
    const std::vector<int64_t> strides = stridesOf(*array_);
    const int64_t heads = shape[first], hidden = shape[first + 1], size = shape[first + 2];
    for (size_t i = 0; i < modules.size(); ++i) {
      SourceTensor tensor({heads * size, hidden});
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t module_begin = first == 1 ? static_cast<int64_t>(i) * strides[0] : 0;
        tensor.addStrided(wholeArray(),
                          {.begin = module_begin + head * strides[first],
                           .rows = size,
                           .cols = hidden,
                           .row_step = strides[first + 2],
                           .col_step = strides[first + 1]},
                          head * size, 0);
      }
      finish(fmt::format("{}self_attn.{}.weight", prefix_, modules[i]), std::move(tensor));
    }
  }

  // [heads, size, hidden] -> [hidden, heads * size].
  void addOutput() {
    const std::vector<int64_t>& shape = array_->shape;
    if (shape.size() != 3) wrongShape("[heads, head size, hidden]");
    const std::vector<int64_t> strides = stridesOf(*array_);
    SourceTensor tensor({shape[2], shape[0] * shape[1]});
    for (int64_t head = 0; head < shape[0]; ++head) {
      tensor.addStrided(wholeArray(),
                        {.begin = head * strides[0],
                         .rows = shape[2],
                         .cols = shape[1],
                         .row_step = strides[2],
                         .col_step = strides[1]},
                        0, head * shape[1]);
    }
    finish(prefix_ + "self_attn.o_proj.weight", std::move(tensor));
  }

  // [2, hidden, intermediate], or [2, intermediate, hidden] in Gemma 3 and the largest Gemma 2 -> two matrices
  // [intermediate, hidden].
  void addGate() {
    const std::vector<int64_t>& shape = array_->shape;
    if (shape.size() != 3 || shape[0] != 2 || (shape[1] != hidden_ && shape[2] != hidden_)) {
      wrongShape("[2, hidden, intermediate] or [2, intermediate, hidden]");
    }
    // The sizes do not tell if they are equal.
    const bool hidden_last = shape[1] != hidden_ || (shape[2] == hidden_ && query_norm_);
    const std::vector<int64_t> strides = stridesOf(*array_);
    const size_t row = hidden_last ? 1 : 2, col = hidden_last ? 2 : 1;
    for (int64_t i = 0; i < 2; ++i) {
      SourceTensor tensor({shape[row], shape[col]});
      tensor.addStrided(wholeArray(),
                        {.begin = i * strides[0],
                         .rows = shape[row],
                         .cols = shape[col],
                         .row_step = strides[row],
                         .col_step = strides[col]},
                        0, 0);
      finish(prefix_ + (i == 0 ? "mlp.gate_proj.weight" : "mlp.up_proj.weight"), std::move(tensor));
    }
  }

  void finish(std::string name, SourceTensor tensor) {
    tensor.finish(array_->name);
    add_(std::move(name), std::move(tensor), array_->file);
  }

  const std::vector<JaxArray>& arrays_;
  const AddJaxTensor& add_;
  const JaxArray* array_ = nullptr;  // the one that is added
  std::string prefix_;               // of the names of its layer
  int64_t hidden_ = 0;
  bool norms_after_ = false;  // Gemma 2 and 3
  bool query_norm_ = false;   // Gemma 3
};
}  // namespace

bool areGemmaArrays(const std::vector<JaxArray>& arrays) {
  return std::ranges::any_of(
      arrays, [](const JaxArray& array) { return nameInTransformer(array.name) == "embedder/input_embedding"; });
}

void addGemmaArrays(const std::vector<JaxArray>& arrays, const AddJaxTensor& add) { GemmaNames(arrays, add).addAll(); }

}  // namespace chorus
