#include "convert/sources/nemo_tensors.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace chorus {
namespace {

// Removes what comes before the names that Megatron's modules have.
std::string_view withoutPrefix(std::string_view name) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view prefix : {"model.", "module.", "language_model.", "encoder.", "decoder."}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      found = true;
    }
  }
  return name;
}

bool hasNoWeights(std::string_view name) {
  return name.ends_with("_extra_state") || name.ends_with("rotary_pos_emb.inv_freq") ||
         name.ends_with("rotary_emb.inv_freq") || name == "word_embeddings.weight";
}

using Names = std::initializer_list<std::string_view>;

// Joins the shards of all ranks to tensors with the names and shapes of the checkpoint.
class Assembler {
 public:
  Assembler(const NemoShards& from, const ModelConfig& config)
      : from_(from), config_(config), shards_(from.shards), tp_(from.layout.tp_size), pp_(from.layout.pp_size) {
    for (const TensorFile& shard : shards_) {
      auto& names = names_.emplace_back();
      for (const std::string& name : shard.names()) {
        if (!names.emplace(withoutPrefix(name), name).second)
          refuse(shard, name, "has the name of another tensor behind its prefix");
      }
    }
    if (config_.num_hidden_layers % pp_ != 0 || config_.num_key_value_heads % tp_ != 0 ||
        config_.intermediate_size % tp_ != 0) {
      fail(ErrorCode::kCorrupt, "{}: layers, 'num_query_groups' or 'ffn_hidden_size' are not divisible by the ranks",
           from_.config_source);
    }
  }

  // Rows of the embedding on all ranks, which may be padded.
  int64_t paddedVocabulary() {
    const TensorView& first = stored(0, 0, {kEmbedding});
    if (first.shape.size() != 2) refuse(shard(0, 0), std::string(kEmbedding), "is no matrix");
    return static_cast<int64_t>(
        checkedMul(static_cast<uint64_t>(first.shape[0]), static_cast<uint64_t>(tp_), "the embedding"));
  }

  // Assembles the tensors of all rows of the table, which is that of the finalised config.
  void assemble(const WeightTable& table, SourceTensors& out) {
    out_ = &out;
    const auto has = [&](const WeightSlot& slot) { return findRow(table, slot) != nullptr; };
    has_norm_bias_ = has(slotOf(NormId::kFinal).bias());
    has_bias_ = has(slotOf(LinearId::kQkv).bias());
    is_gated_ = has(slotOf(LinearId::kFc, config_.intermediate_size));
    if (const WeightRow* experts = findRow(table, slotOf(LinearId::kExpertsProj))) {
      experts_ = experts->experts;
      expert_size_ = experts->shape[1];
    }
    const int64_t vocabulary = config_.vocab_size, h = config_.hidden_size;
    const int64_t padded = paddedVocabulary();
    byRows("transformer.vocab_embedding.weight", 0, {kEmbedding}, padded, h, vocabulary);
    if (has(slotOf(TableId::kPositions))) {
      whole("transformer.position_embedding.weight", 0, {"embedding.position_embeddings.weight"},
            {config_.max_position_embeddings, h});
    }
    for (int32_t layer = 0; layer < config_.num_hidden_layers; ++layer) addLayer(layer);
    const int32_t last = pp_ - 1;
    norm("transformer.ln_f", last, {"final_layernorm.weight", "final_norm.weight"},
         {"final_layernorm.bias", "final_norm.bias"});
    if (!config_.tie_word_embeddings) byRows("lm_head.weight", last, {"output_layer.weight"}, padded, h, vocabulary);
    checkAllUsed();
  }

 private:
  static constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight";

  [[noreturn]] static void refuse(const TensorFile& shard, const std::string& name, std::string_view reason) {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", shard.source(), name, reason);
  }
  const TensorFile& shard(int32_t pp, int32_t tp) const { return shards_[index(pp, tp)]; }
  size_t index(int32_t pp, int32_t tp) const {
    return static_cast<size_t>(pp) * static_cast<size_t>(tp_) + static_cast<size_t>(tp);
  }

  // Returns the name, in a rank's checkpoint, of the first tensor of `names` that is there; null if none is.
  const std::string* find(int32_t pp, int32_t tp, Names names, std::string_view prefix = {}) const {
    const auto& known = names_[index(pp, tp)];
    for (const std::string_view name : names) {
      const auto it = known.find(fmt::format("{}{}", prefix, name));
      if (it != known.end()) return &it->second;
    }
    return nullptr;
  }
  const TensorView& stored(int32_t pp, int32_t tp, Names names, std::string_view prefix = {}) {
    const std::string* name = find(pp, tp, names, prefix);
    if (name == nullptr) {
      fail(ErrorCode::kCorrupt, "{}: Required but not provided tensors: {}{}", shard(pp, tp).source(), prefix,
           *names.begin());
    }
    used_.insert(name);
    return *shard(pp, tp).find(*name);
  }
  // Overload that also requires `shape`.
  const TensorView& stored(int32_t pp, int32_t tp, Names names, std::string_view prefix,
                           const std::vector<int64_t>& shape) {
    const TensorView& view = stored(pp, tp, names, prefix);
    if (view.shape != shape) {
      refuse(shard(pp, tp), *find(pp, tp, names, prefix),
             fmt::format("has shape {}, {} asks for {}", shapeText(view.shape), from_.config_source, shapeText(shape)));
    }
    return view;
  }

  void add(std::string name, SourceTensor tensor, int32_t pp) {
    tensor.finish(name);
    out_->add(std::move(name), std::move(tensor), shard(pp, 0).source());
  }

  static std::vector<int64_t> shapeOf(int64_t rows, int64_t cols) {
    return cols == 0 ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, cols};
  }

  // In the functions below, cols 0 means that the tensor is a vector.
  //
  // Adds a tensor that all tensor-parallel ranks have whole.
  void whole(std::string name, int32_t pp, Names names, std::vector<int64_t> shape, std::string_view prefix = {}) {
    const TensorView& view = stored(pp, 0, names, prefix, shape);
    for (int32_t tp = 1; tp < tp_; ++tp) stored(pp, tp, names, prefix, shape);
    SourceTensor tensor(std::move(shape));
    tensor.addWhole(view, 0);
    add(std::move(name), std::move(tensor), pp);
  }

  // Adds a tensor of which each rank has consecutive rows. Only the first `taken` of `rows` rows are taken.
  void byRows(std::string name, int32_t pp, Names names, int64_t rows, int64_t cols, int64_t taken,
              std::string_view prefix = {}) {
    const int64_t each = rows / tp_;
    SourceTensor tensor(shapeOf(taken, cols));
    for (int32_t tp = 0; tp < tp_; ++tp) {
      const TensorView& view = stored(pp, tp, names, prefix, shapeOf(each, cols));
      const int64_t count = std::min(each, taken - tp * each);
      if (count > 0) tensor.addRectangle(view, {0, 0, count, std::max<int64_t>(cols, 1)}, tp * each, 0);
    }
    add(std::move(name), std::move(tensor), pp);
  }

  void byColumns(std::string name, int32_t pp, Names names, int64_t rows, int64_t cols, std::string_view prefix) {
    const int64_t each = cols / tp_;
    SourceTensor tensor({rows, cols});
    for (int32_t tp = 0; tp < tp_; ++tp) tensor.addWhole(stored(pp, tp, names, prefix, {rows, each}), 0, tp * each);
    add(std::move(name), std::move(tensor), pp);
  }

  // Each rank has some KV groups: the query heads of a group, its key, its value.
  void qkv(std::string name, int32_t pp, Names names, int64_t cols, std::string_view prefix) {
    const int64_t d = config_.head_size, groups = config_.num_key_value_heads;
    const int64_t queries = config_.num_attention_heads / groups * d, group = queries + 2 * d, each = groups / tp_;
    const int64_t width = std::max<int64_t>(cols, 1);
    SourceTensor tensor(shapeOf(groups * group, cols));
    for (int32_t tp = 0; tp < tp_; ++tp) {
      const TensorView& view = stored(pp, tp, names, prefix, shapeOf(each * group, cols));
      for (int64_t i = 0; i < each; ++i) {
        const int64_t from = i * group, to = tp * each + i;
        tensor.addRectangle(view, {from, 0, queries, width}, to * queries, 0);
        tensor.addRectangle(view, {from + queries, 0, d, width}, groups * queries + to * d, 0);
        tensor.addRectangle(view, {from + queries + d, 0, d, width}, groups * (queries + d) + to * d, 0);
      }
    }
    add(std::move(name), std::move(tensor), pp);
  }

  // Half 0 or 1 of a tensor of which each rank has a part of both halves.
  void half(std::string name, int32_t pp, Names names, int64_t rows, int64_t cols, int64_t which,
            std::string_view prefix) {
    const int64_t each = rows / tp_;
    SourceTensor tensor(shapeOf(rows, cols));
    for (int32_t tp = 0; tp < tp_; ++tp) {
      const TensorView& view = stored(pp, tp, names, prefix, shapeOf(2 * each, cols));
      tensor.addRectangle(view, {which * each, 0, each, std::max<int64_t>(cols, 1)}, tp * each, 0);
    }
    add(std::move(name), std::move(tensor), pp);
  }

  // A norm's weight, and its bias if the model's norms have one.
  void norm(const std::string& name, int32_t pp, Names weights, Names biases, std::string_view prefix = {}) {
    whole(name + ".weight", pp, weights, {config_.hidden_size}, prefix);
    if (has_norm_bias_) whole(name + ".bias", pp, biases, {config_.hidden_size}, prefix);
  }

  void addLayer(int32_t layer) {
    const int32_t in_stage = config_.num_hidden_layers / pp_, pp = layer / in_stage;
    const std::string prefix = fmt::format("layers.{}.", layer % in_stage),
                      out = fmt::format("transformer.layers.{}.", layer);
    const int64_t h = config_.hidden_size, f = config_.intermediate_size,
                  q = config_.num_attention_heads * config_.head_size;
    norm(out + "input_layernorm", pp, {"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight"},
         {"input_layernorm.bias", "self_attention.linear_qkv.layer_norm_bias"}, prefix);
    norm(out + "post_layernorm", pp,
         {"post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"},
         {"post_attention_layernorm.bias", "mlp.linear_fc1.layer_norm_bias", "pre_mlp_layernorm.bias"}, prefix);
    qkv(out + "attention.qkv.weight", pp, {"self_attention.query_key_value.weight", "self_attention.linear_qkv.weight"},
        h, prefix);
    byColumns(out + "attention.dense.weight", pp, {"self_attention.dense.weight", "self_attention.linear_proj.weight"},
              h, q, prefix);
    if (experts_ > 0) return addExperts(out, pp, prefix);
    addFc(out, pp, "weight", h, prefix);
    byColumns(out + "mlp.proj.weight", pp, {"mlp.dense_4h_to_h.weight", "mlp.linear_fc2.weight"}, h, f, prefix);
    if (!has_bias_) return;
    qkv(out + "attention.qkv.bias", pp, {"self_attention.query_key_value.bias", "self_attention.linear_qkv.bias"}, 0,
        prefix);
    whole(out + "attention.dense.bias", pp, {"self_attention.dense.bias", "self_attention.linear_proj.bias"}, {h},
          prefix);
    addFc(out, pp, "bias", 0, prefix);
    whole(out + "mlp.proj.bias", pp, {"mlp.dense_4h_to_h.bias", "mlp.linear_fc2.bias"}, {h}, prefix);
  }

  void addFc(const std::string& out, int32_t pp, std::string_view field, int64_t cols, std::string_view prefix) {
    const int64_t f = config_.intermediate_size;
    const std::string old = fmt::format("mlp.dense_h_to_4h.{}", field), core = fmt::format("mlp.linear_fc1.{}", field),
                      second = fmt::format("mlp.dense_h_to_4h_2.{}", field);
    const std::string fc = fmt::format("{}mlp.fc.{}", out, field), gate = fmt::format("{}mlp.gate.{}", out, field);
    if (!is_gated_) return byRows(fc, pp, {old, core}, f, cols, f, prefix);
    // Without fast- before its activation, a legacy model has two linears.
    if (find(pp, 0, {second}, prefix) != nullptr) {
      byRows(fc, pp, {old}, f, cols, f, prefix);
      return byRows(gate, pp, {second}, f, cols, f, prefix);
    }
    half(fc, pp, {old, core}, f, cols, 0, prefix);
    half(gate, pp, {old, core}, f, cols, 1, prefix);
  }

  // The tensors of Megatron core's SequentialMLP, or of Transformer Engine's grouped linears.
  void addExperts(const std::string& out, int32_t pp, std::string_view prefix) {
    const int64_t h = config_.hidden_size, f = expert_size_;
    if (const std::string* grouped = find(pp, 0, {"mlp.experts.weight1"}, prefix)) {
      fail(ErrorCode::kUnsupported,
           "{}: tensor '{}' holds all experts, as 'moe_grouped_gemm' without Transformer "
           "Engine keeps them, which is not supported",
           shard(pp, 0).source(), *grouped);
    }
    whole(out + "mlp.router.weight", pp, {"mlp.router.weight"}, {experts_, h}, prefix);
    for (int64_t expert = 0; expert < experts_; ++expert) {
      const auto names = [&](const char* linear) {
        return std::pair(fmt::format("mlp.experts.local_experts.{}.{}.weight", expert, linear),
                         fmt::format("mlp.experts.{}.weight{}", linear, expert));
      };
      const std::string in_checkpoint = fmt::format("{}mlp.experts.{}.", out, expert);
      const auto [fc, grouped_fc] = names("linear_fc1");
      expertInput(in_checkpoint + "fc.weight", pp, {fc, grouped_fc}, f, h, prefix);
      const auto [proj, grouped_proj] = names("linear_fc2");
      byColumns(in_checkpoint + "proj.weight", pp, {proj, grouped_proj}, h, f, prefix);
    }
  }

  // Adds an expert's input projection, [2 * rows, cols]. Each rank's tensor has the rank's shares of both halves, the
  // activated half first; the checkpoint's tensor has the activated half last.
  void expertInput(std::string name, int32_t pp, Names names, int64_t rows, int64_t cols, std::string_view prefix) {
    const int64_t each = rows / tp_;
    SourceTensor tensor({2 * rows, cols});
    for (int32_t tp = 0; tp < tp_; ++tp) {
      const TensorView& view = stored(pp, tp, names, prefix, {2 * each, cols});
      tensor.addRectangle(view, {0, 0, each, cols}, rows + tp * each, 0);
      tensor.addRectangle(view, {each, 0, each, cols}, tp * each, 0);
    }
    add(std::move(name), std::move(tensor), pp);
  }

  void checkAllUsed() const {
    for (size_t i = 0; i < names_.size(); ++i) {
      for (const auto& [name, full] : names_[i]) {
        // The last stage of a model with tied embeddings has a copy of the table.
        const bool is_copy = config_.tie_word_embeddings && name == "output_layer.weight";
        if (used_.contains(&full) || hasNoWeights(name) || is_copy) continue;
        refuse(shards_[i], full,
               fmt::format("is none of {}; the weights and {} are of different models", config_.architecture,
                           from_.config_source));
      }
    }
  }

  const NemoShards& from_;
  const ModelConfig& config_;
  const std::vector<TensorFile>& shards_;
  const int32_t tp_, pp_;
  bool has_norm_bias_ = false, has_bias_ = false, is_gated_ = false;
  int64_t experts_ = 0, expert_size_ = 0;                               // 0: the MLPs are dense
  std::vector<std::map<std::string, std::string, std::less<>>> names_;  // of each shard: name without prefix -> name
  std::set<const std::string*> used_;
  SourceTensors* out_ = nullptr;
};

}  // namespace

int64_t paddedVocabulary(const NemoShards& shards, const ModelConfig& config) {
  return Assembler(shards, config).paddedVocabulary();
}

std::string joinedName(const WeightRow& row) {
  if (row.experts == 0) return row.name;
  std::string name = row.name;
  const std::string_view mlp = ".mlp.";
  return name.replace(name.find(mlp), mlp.size(), ".mlp.experts.{expert}.");
}

void joinNemoShards(const NemoShards& shards, const ModelConfig& config, const WeightTable& table, SourceTensors& out) {
  Assembler(shards, config).assemble(table, out);
}

}  // namespace chorus
