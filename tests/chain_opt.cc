#include "chain_opt.h"

#include <random>
#include <stdexcept>

#include "base/file.h"
#include "base/json.h"
#include "random_llama.h"
#include "support/test_paths.h"
#include "text/text_codec.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHidden = 64, kMlp = 96, kPositions = 2048;
constexpr int kLayers = 2;

}  // namespace

void writeChainOpt(const std::vector<std::string>& words, const fs::path& directory) {
  const fs::path demo = sourceDir() / "examples/demo/base";
  fs::create_directories(directory);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) fs::copy_file(demo / file, directory / file);
  const auto codec = loadTextCodec(directory);
  const int64_t vocab = codec->vocabSize();
  const Json config = {{"architectures", {"OPTForCausalLM"}},
                       {"model_type", "opt"},
                       {"hidden_size", kHidden},
                       {"word_embed_proj_dim", kHidden},
                       {"ffn_dim", kMlp},
                       {"num_hidden_layers", kLayers},
                       {"num_attention_heads", 4},
                       {"vocab_size", vocab},
                       {"max_position_embeddings", kPositions},
                       {"activation_function", "relu"},
                       {"do_layer_norm_before", true},
                       {"tie_word_embeddings", false},
                       {"eos_token_id", *codec->eosTokenId()},
                       {"torch_dtype", "float32"}};
  writeFileAtomically(directory / "config.json", config.dump(2));

  std::mt19937_64 rng(11);
  PlainTensors tensors;
  constexpr double kSmall = 0.02;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    tensors[name + ".weight"] = randomTensor({out, in}, 0, kSmall, rng);
    tensors[name + ".bias"] = randomTensor({out}, 0, kSmall, rng);
  };
  const auto norm = [&](const std::string& name) {
    tensors[name + ".weight"] = randomTensor({kHidden}, 1, kSmall, rng);
    tensors[name + ".bias"] = randomTensor({kHidden}, 0, kSmall, rng);
  };
  PlainTensor& embedding = tensors["model.decoder.embed_tokens.weight"] =
      randomTensor({vocab, kHidden}, 0, kSmall, rng);
  PlainTensor& head = tensors["lm_head.weight"] = randomTensor({vocab, kHidden}, 0, kSmall, rng);
  tensors["model.decoder.embed_positions.weight"] = randomTensor({kPositions + 2, kHidden}, 0, kSmall, rng);
  norm("model.decoder.final_layer_norm");
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.decoder.layers." + std::to_string(layer) + ".";
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      linear(prefix + "self_attn." + name, kHidden, kHidden);
    linear(prefix + "fc1", kMlp, kHidden);
    linear(prefix + "fc2", kHidden, kMlp);
    norm(prefix + "self_attn_layer_norm");
    norm(prefix + "final_layer_norm");
  }

  // Feature i is large after word i - 1, feature 0 after any other token; the head reads from it which token is next.
  constexpr float kLarge = 4;
  const auto at = [](PlainTensor& table, int64_t token, size_t feature) -> float& {
    return table.values[static_cast<size_t>(token * kHidden) + feature];
  };
  std::vector<size_t> features(static_cast<size_t>(vocab), 0);
  for (size_t i = 0; i <= words.size(); ++i) {
    int64_t next = *codec->eosTokenId();
    if (i < words.size()) {
      const std::vector<int32_t> tokens = codec->encode(" " + words[i], false);
      if (tokens.size() != 1) throw std::invalid_argument(words[i] + " is not one token");
      next = tokens.front();
      features[static_cast<size_t>(next)] = i + 1;
    }
    at(head, next, i) = kLarge;
  }
  for (int64_t token = 0; token < vocab; ++token) at(embedding, token, features[static_cast<size_t>(token)]) = kLarge;
  writeTensors(tensors, directory / "model.safetensors");
}

}  // namespace chorus::test
