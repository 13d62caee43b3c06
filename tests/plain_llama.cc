#include "plain_llama.h"

#include <cmath>
#include <string>

namespace chorus::test {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

constexpr double kEpsilon = 1e-5;  // the value of writeModel
constexpr double kRotaryBase = 10000.0;

class Network {
 public:
  Network(const RandomLlama& model, const PlainNetwork& network) : m_(model), n_(network) {}

  std::vector<float> logits(std::span<const int32_t> tokens) const {
    Rows x;
    const PlainTensor& table = m_.tensors.at("model.embed_tokens.weight");
    for (const int32_t token : tokens) x.push_back(rowOf(table, token));
    for (int64_t layer = 0; layer < m_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      add(x, attention(normed(x, prefix + "input_layernorm"), prefix + "self_attn."));
      add(x, mlp(normed(x, prefix + "post_attention_layernorm"), prefix + "mlp."));
    }
    std::vector<float> logits;
    const PlainTensor& head = m_.tied ? table : m_.tensors.at("lm_head.weight");
    for (const Row& row : normed(x, "model.norm")) {
      for (int64_t v = 0; v < m_.vocab; ++v) logits.push_back(static_cast<float>(dot(rowOf(head, v), row)));
    }
    return logits;
  }

 private:
  static Row rowOf(const PlainTensor& tensor, int64_t row) {
    const auto begin = tensor.values.begin() + row * tensor.shape[1];
    return Row(begin, begin + tensor.shape[1]);
  }
  static double dot(const Row& a, const Row& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  static void add(Rows& x, const Rows& delta) {
    for (size_t r = 0; r < x.size(); ++r) {
      for (size_t i = 0; i < x[r].size(); ++i) x[r][i] += delta[r][i];
    }
  }

  Rows normed(const Rows& x, const std::string& name) const {
    const PlainTensor& weight = m_.tensors.at(name + ".weight");
    Rows y = x;
    for (Row& row : y) {
      const double scale = 1 / std::sqrt(dot(row, row) / static_cast<double>(row.size()) + kEpsilon);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * weight.values[i];
    }
    return y;
  }

  Rows linear(const Rows& x, const std::string& name) const {
    const PlainTensor& weight = m_.tensors.at(name + ".weight");
    const auto bias = m_.tensors.find(name + ".bias");
    Rows y;
    for (const Row& row : x) {
      Row& out = y.emplace_back();
      for (int64_t o = 0; o < weight.shape[0]; ++o) {
        const double added = bias == m_.tensors.end() ? 0 : bias->second.values[static_cast<size_t>(o)];
        out.push_back(dot(rowOf(weight, o), row) + added);
      }
    }
    return y;
  }

  // Applies the rotary embedding to every head.
  void rotate(Rows& x) const {
    const auto d = static_cast<size_t>(m_.head_size);
    for (size_t position = 0; position < x.size(); ++position) {
      for (size_t head = 0; head < x[position].size(); head += d) {
        for (size_t i = 0; i < d / 2; ++i) {
          double& a = x[position][head + (n_.adjacent_pairs ? 2 * i : i)];
          double& b = x[position][head + (n_.adjacent_pairs ? 2 * i + 1 : i + d / 2)];
          const double angle = static_cast<double>(position) *
                               std::pow(kRotaryBase, -2 * static_cast<double>(i) / static_cast<double>(d));
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = turned;
        }
      }
    }
  }

  Rows attention(const Rows& x, const std::string& name) const {
    Rows q = linear(x, name + "q_proj");
    Rows k = linear(x, name + "k_proj");
    const Rows v = linear(x, name + "v_proj");
    rotate(q);
    rotate(k);
    const auto d = static_cast<size_t>(m_.head_size);
    const double divisor = n_.q_scaling * std::sqrt(static_cast<double>(d));
    Rows out(x.size(), Row(static_cast<size_t>(m_.heads) * d));
    for (size_t head = 0; head < static_cast<size_t>(m_.heads); ++head) {
      const size_t kv = head * static_cast<size_t>(m_.kv_heads) / static_cast<size_t>(m_.heads) * d;
      for (size_t row = 0; row < x.size(); ++row) {
        Row weights;
        double sum = 0;
        for (size_t key = 0; key <= row; ++key) {
          double score = 0;
          for (size_t i = 0; i < d; ++i) score += q[row][head * d + i] * k[key][kv + i];
          weights.push_back(std::exp(score / divisor));
          sum += weights.back();
        }
        for (size_t key = 0; key <= row; ++key) {
          for (size_t i = 0; i < d; ++i) out[row][head * d + i] += weights[key] / sum * v[key][kv + i];
        }
      }
    }
    return linear(out, name + "o_proj");
  }

  Rows mlp(const Rows& x, const std::string& name) const {
    Rows gate = linear(x, name + "gate_proj");
    const Rows up = linear(x, name + "up_proj");
    for (size_t r = 0; r < gate.size(); ++r) {
      for (size_t i = 0; i < gate[r].size(); ++i) gate[r][i] = n_.activation(gate[r][i]) * up[r][i];
    }
    return linear(gate, name + "down_proj");
  }

  const RandomLlama& m_;
  const PlainNetwork& n_;
};
}  // namespace

std::vector<float> plainLogits(const RandomLlama& model, const PlainNetwork& network, std::span<const int32_t> tokens) {
  return Network(model, network).logits(tokens);
}

}  // namespace chorus::test
