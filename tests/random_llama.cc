#include "random_llama.h"

#include <fmt/format.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace chorus::test {
namespace {

int64_t between(int64_t low, int64_t high, std::mt19937_64& rng) {
  return low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1));
}

// Rounds to seven bits of significand: exact in bfloat16, and in float16 for the sizes used here.
float rounded(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return static_cast<float>(std::ldexp(std::round(fraction * 128), exponent - 7));
}

struct Linear {
  const char* name;
  int64_t out, in;
  bool bias;
};

std::vector<Linear> linears(const RandomLlama& m) {
  const int64_t q = m.heads * m.head_size, kv = m.kv_heads * m.head_size;
  return {{"self_attn.q_proj", q, m.hidden, m.attention_bias},  {"self_attn.k_proj", kv, m.hidden, m.attention_bias},
          {"self_attn.v_proj", kv, m.hidden, m.attention_bias}, {"self_attn.o_proj", m.hidden, q, m.attention_bias},
          {"mlp.gate_proj", m.mlp, m.hidden, m.mlp_bias},       {"mlp.up_proj", m.mlp, m.hidden, m.mlp_bias},
          {"mlp.down_proj", m.hidden, m.mlp, m.mlp_bias}};
}
}  // namespace

PlainTensor randomTensor(std::vector<int64_t> shape, double mean, double deviation, std::mt19937_64& rng) {
  PlainTensor tensor{.shape = std::move(shape)};
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= extent;
  for (int64_t i = 0; i < count; ++i) {
    const double uniform = static_cast<double>(rng() % 20001) / 10000 - 1;  // of standard deviation 1 / sqrt(3)
    tensor.values.push_back(rounded(mean + uniform * std::sqrt(3.0) * deviation));
  }
  return tensor;
}

void writeTensors(const PlainTensors& tensors, const std::filesystem::path& path) {
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const auto& [name, tensor] : tensors) declarations.push_back({name, DType::kFloat32, tensor.shape});
  SafetensorsWriter writer(path, declarations);
  for (const auto& [name, tensor] : tensors) writer.write(name, 0, std::as_bytes(std::span(tensor.values)));
  writer.finish();
}

std::string RandomLlama::describe() const {
  return fmt::format("layers {} hidden {} heads {} kv_heads {} head_size {} mlp {} vocab {} bias {} {} tied {}", layers,
                     hidden, heads, kv_heads, head_size, mlp, vocab, attention_bias, mlp_bias, tied);
}

RandomLlama randomLlamaShape(std::mt19937_64& rng) {
  RandomLlama model;
  model.layers = between(3, 5, rng);
  model.hidden = 4 * between(3, 9, rng);
  model.heads = 4 * between(1, 2, rng);
  model.kv_heads = int64_t{1} << between(0, model.heads == 4 ? 2 : 3, rng);
  model.head_size = 2 * between(2, 5, rng);
  model.mlp = 4 * between(4, 11, rng);
  model.vocab = between(18, 75, rng);
  model.attention_bias = rng() % 2 == 0;
  model.mlp_bias = rng() % 2 == 0;
  model.tied = rng() % 3 == 0;
  return model;
}

void fillWeights(RandomLlama& m, std::mt19937_64& rng) {
  m.tensors["model.embed_tokens.weight"] = randomTensor({m.vocab, m.hidden}, 0, 1, rng);
  m.tensors["model.norm.weight"] = randomTensor({m.hidden}, 1, 0.2, rng);
  if (!m.tied) m.tensors["lm_head.weight"] = randomTensor({m.vocab, m.hidden}, 0, 0.4, rng);
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    for (const Linear& linear : linears(m)) {
      const double deviation = 1 / std::sqrt(static_cast<double>(linear.in));
      m.tensors[prefix + linear.name + ".weight"] = randomTensor({linear.out, linear.in}, 0, deviation, rng);
      if (linear.bias) m.tensors[prefix + linear.name + ".bias"] = randomTensor({linear.out}, 0, 0.3, rng);
    }
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      m.tensors[prefix + norm] = randomTensor({m.hidden}, 1, 0.2, rng);
    }
  }
}

void writeModel(const RandomLlama& m, const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir);
  const Json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_size", m.hidden},
                       {"intermediate_size", m.mlp},
                       {"num_hidden_layers", m.layers},
                       {"num_attention_heads", m.heads},
                       {"num_key_value_heads", m.kv_heads},
                       {"head_dim", m.head_size},
                       {"vocab_size", m.vocab},
                       {"max_position_embeddings", 128},
                       {"hidden_act", "silu"},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", 10000.0},
                       {"attention_bias", m.attention_bias},
                       {"mlp_bias", m.mlp_bias},
                       {"tie_word_embeddings", m.tied},
                       {"torch_dtype", "float32"}};
  writeFileAtomically(dir / "config.json", config.dump(2));
  writeTensors(m.tensors, dir / "model.safetensors");
}

void writeRandomAdapter(const RandomLlama& m, bool dora, std::mt19937_64& rng, const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir);
  const int64_t rank = between(1, 9, rng);
  const bool all = rng() % 2 == 0;
  const bool rslora = rng() % 2 == 0;
  // The adapter's term is half as large as the base's. Much larger scores would make softmax amplify rounding errors.
  const double scale = rslora ? 2 * std::sqrt(static_cast<double>(rank)) : 2;
  const double b_deviation = 0.5 / (scale * std::sqrt(static_cast<double>(rank)));
  PlainTensors tensors;
  Json targets = Json::array();
  for (const Linear& linear : linears(m)) {
    const std::string name = linear.name;
    if (!all && name != "self_attn.o_proj" && rng() % 2 == 0) continue;  // o_proj, whose inputs are sharded, stays
    targets.push_back(name.substr(name.find('.') + 1));
    for (int64_t layer = 0; layer < m.layers; ++layer) {
      const std::string prefix = fmt::format("base_model.model.model.layers.{}.{}.", layer, name);
      const double deviation = 1 / std::sqrt(static_cast<double>(linear.in));
      tensors[prefix + "lora_A.weight"] = randomTensor({rank, linear.in}, 0, deviation, rng);
      tensors[prefix + "lora_B.weight"] = randomTensor({linear.out, rank}, 0, b_deviation, rng);
      if (dora) tensors[prefix + "lora_magnitude_vector"] = randomTensor({linear.out}, 1, 0.2, rng);
    }
  }
  const Json config = {
      {"peft_type", "LORA"},  {"task_type", "CAUSAL_LM"}, {"r", rank},      {"lora_alpha", 2 * rank},
      {"use_rslora", rslora}, {"use_dora", dora},         {"bias", "none"}, {"target_modules", std::move(targets)}};
  writeFileAtomically(dir / "adapter_config.json", config.dump(2));
  writeTensors(tensors, dir / "adapter_model.safetensors");
}

}  // namespace chorus::test
