// Builds the weight table of a decoder row by row, with TensorRT-LLM's names, shapes and shard rules.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/weight_table.h"
#include "models/model_spec.h"

namespace chorus {

// The functions append rows in the order of their calls. Sources name tensors of Hugging Face's files; "{layer}" stands
// for the layer id. A bias has the source of its weight, with ".bias" for ".weight". `config` must outlive the object.
// norms: how the source keeps the weights of all norms.
class DecoderRows {
 public:
  explicit DecoderRows(const ModelConfig& config, const SourceTransform& norms = {}) : config_(config), norms_(norms) {}

  void embedding(std::string source);
  // Learned positions, [max_position_embeddings, hidden]; row p belongs to position p.
  void positions(WeightSource source);
  // The linears between an embedding of embedding_size and the hidden size.
  void projectIn(std::string source);
  void projectOut(std::string source);

  // A norm of every layer, kEmbedding or kFinal. name: in the checkpoint, below its layer; source: the tensor's name
  // without ".weight". layerNorm() adds a bias.
  void norm(NormId id, const std::string& name, const std::string& source);
  void layerNorm(NormId id, const std::string& name, const std::string& source);
  // Norms of queries and keys of this kind, which is not kNone.
  void qkNorms(QkNorm kind, std::string query_source, std::string key_source);

  // q, k and v are fused in this order. sources, targets: of the fused rows.
  void qkv(std::vector<WeightSource> sources, std::vector<LoraTarget> targets, bool bias);
  // Adds query, key and value from one source tensor and one module. For each KV head they have the rows of its query
  // heads, its key and its value. source: the tensor's name is source_prefix + module + ".weight".
  void groupedQkv(const std::string& source_prefix, const std::string& module, bool bias);
  // The other linears have one source, of all rows, and one module that adapters target: its name after the layer's.
  void dense(WeightSource source, std::string module, bool bias);
  void fc(WeightSource source, std::string module, bool bias);  // of an MLP without a gate
  void proj(WeightSource source, std::string module, bool bias);
  // The two halves of a gated MLP's input projection: the activated one, then the other.
  struct Half {
    std::vector<WeightSource> sources;
    std::vector<LoraTarget> targets;
  };
  void gatedFc(Half fc, Half gate, bool bias);

  void append(const WeightTable& rows) { table_.insert(table_.end(), rows.begin(), rows.end()); }

  // The output head, unless the model shares it with its embedding, which must come before; and its bias.
  void head(const std::string& source, bool bias = false);

  WeightTable take() { return std::move(table_); }

 private:
  void add(const WeightRow& row, bool bias);

  const ModelConfig& config_;
  SourceTransform norms_;
  std::string embedding_source_;
  WeightTable table_;
};

// The rows of q, k and v in the fused tensor.
struct QkvRows {
  explicit QkvRows(const ModelConfig& c)
      : q(c.num_attention_heads * c.head_size), kv(c.num_key_value_heads * c.head_size), all(q + 2 * kv) {}
  int64_t q, kv, all;
};

// Sources and targets of q, k and v as three modules, such as "self_attn.q_proj" and so on: source_prefix + module +
// ".weight" is the source of a module.
std::vector<WeightSource> separateQkvSources(const ModelConfig& config, const std::string& source_prefix,
                                             const std::string (&modules)[3]);
std::vector<LoraTarget> separateQkvTargets(const ModelConfig& config, const std::string (&modules)[3],
                                           TorchtuneRows torchtune = TorchtuneRows::kUnknown);

}  // namespace chorus
