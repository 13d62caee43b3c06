// Megatron GPT models in NeMo's archives answer as a plain reference of their layout does (tests/oracle/
// nemo_gpt_goldens.py), from any ranks and in any engine; their adapters as archives, as PEFT directories and as
// tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "command.h"
#include "convert/convert_model.h"
#include "convert/sources/sources.h"
#include "executor_runs.h"
#include "formats/safetensors.h"
#include "formats/tar_archive.h"
#include "fuzz/mutate_bytes.h"
#include "hashed_weights.h"
#include "nemo_files.h"
#include "random_llama.h"
#include "server/model/served_engine.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A golden of NeMo: a model's config, the shapes of its tensors, and the reference's answers.
class NemoGolden {
 public:
  explicit NemoGolden(const std::string& name)
      : name_(name), json_(readJsonFile(sourceDir() / "tests/goldens/nemo_gpt" / (name + ".json"))) {}

  const Json& json() const { return json_; }
  // row: name, shape, center and scale.
  void addTensor(const Json& row) { json_["tensors"].push_back(row); }
  int64_t of(const char* field, int64_t fallback) const { return json_["config"].value(field, fallback); }
  int64_t heads() const { return of("num_attention_heads", 0); }
  int64_t kvHeads() const { return of("num_query_groups", heads()); }
  int64_t headSize() const { return of("kv_channels", of("hidden_size", 0) / heads()); }
  int64_t layers() const { return of("num_layers", 0); }
  bool isGated() const { return json_["config"]["activation"].get<std::string>().find("glu") != std::string::npos; }

  std::string config(int32_t tp_size, int32_t pp_size, const Json& more = Json::object()) const {
    Json config = json_["config"];
    config["tensor_model_parallel_size"] = tp_size;
    config["pipeline_model_parallel_size"] = pp_size;
    config["precision"] = 32;
    config["tokenizer"] = {{"library", "huggingface"}, {"type", "somebody/model"}};
    config.update(more);
    return config.dump(1);  // JSON is YAML
  }

  std::string model(int32_t tp_size = 1, int32_t pp_size = 1, const Json& more = Json::object(),
                    const std::vector<TestTar::Entry>& others = {}) const {
    return TestNemo{config(tp_size, pp_size, more), checkpoints("tensors", name_, tp_size, pp_size), others}.build();
  }
  std::string adapter(int32_t tp_size = 1, int32_t pp_size = 1) const {
    const Json peft = {
        {"peft_scheme", "lora"},
        {"lora_tuning", {{"adapter_dim", json_["rank"]}, {"alpha", json_["alpha"]}, {"variant", "nemo"}}}};
    return TestNemo{config(tp_size, pp_size, {{"peft", peft}}),
                    checkpoints("adapter", name_ + "/adapter", tp_size, pp_size)}
        .build();
  }
  // The values of a tensor of the golden.
  NemoMatrix values(const Json& row, const std::string& folder, int64_t layer) const {
    std::string name = row.at(0);
    if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(layer));
    const auto shape = row.at(1).get<std::vector<int64_t>>();
    NemoMatrix matrix = {shape[0], shape.size() > 1 ? shape[1] : 0, {}};
    matrix.values = hashedValues(fmt::format("{}/{}/{}", json_["seed"].get<int64_t>(), folder, name),
                                 static_cast<size_t>(matrix.rows * matrix.width()), row.at(2), row.at(3));
    return matrix;
  }

 private:
  std::vector<std::pair<std::string, std::vector<TestTensor>>> checkpoints(const char* field, const std::string& folder,
                                                                           int32_t tp_size, int32_t pp_size) const {
    std::vector<std::vector<NemoTensor>> layers(static_cast<size_t>(this->layers()));
    std::vector<NemoTensor> first, last;
    for (const Json& row : json_[field]) {
      std::string name = row.at(0);
      const NemoCut cut = cutOf(name);
      const size_t at = name.find("{}");
      if (at == std::string::npos) {
        const bool is_last = name.find("final") != std::string::npos || name.find("output_layer") != std::string::npos;
        (is_last ? last : first).push_back({name, values(row, folder, 0), cut});
        continue;
      }
      name.replace(at, 2, "{layer}");
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        layers[layer].push_back({name, values(row, folder, static_cast<int64_t>(layer)), cut});
      }
    }
    return nemoCheckpoints(layers, first, last, tp_size, pp_size);
  }

  NemoCut cutOf(const std::string& name) const {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (has("norm") || has("position_embeddings") || has("router")) return NemoCut::kWhole;
    const bool reads_shards = has("linear_proj.") || has("attention.dense.") || has("4h_to_h") || has("linear_fc2.");
    if (reads_shards) return name.ends_with("bias") ? NemoCut::kWhole : NemoCut::kColumns;
    if (name.ends_with("linear_in.weight"))
      return has("dense_attention") || has("4htoh") ? NemoCut::kColumns : NemoCut::kRows;
    const bool is_fc = has("dense_h_to_4h") || has("linear_fc1.") || has("hto4h");
    return is_fc && isGated() ? NemoCut::kHalves : NemoCut::kRows;
  }

  std::string name_;
  Json json_;
};

fs::path write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  writeFileAtomically(path, bytes);
  return path;
}

// Unpacks an archive as a user may do.
fs::path unpacked(const std::string& archive, const fs::path& dir) {
  for (const TarMember& member : readTar(PartialBytes(std::as_bytes(std::span(archive))), "test")) {
    write(dir / member.name, archive.substr(member.offset, member.size));
  }
  return dir;
}

void expectAnswers(const NemoGolden& golden, executor::Executor& executor, float tolerance) {
  std::vector<executor::Request> requests;
  for (const Json& row : golden.json()["answers"]) {
    requests.push_back(
        greedyRequest(row["prompt"], 12, row["adapter"].get<bool>() ? std::optional<size_t>(0) : std::nullopt));
  }
  const std::vector<RunAnswer> answers = runTogether(executor, requests);
  const auto vocabulary = golden.json()["vocabulary"].get<size_t>();
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE("answer " + std::to_string(i));
    const Json& row = golden.json()["answers"][i];
    EXPECT_EQ(answers[i].tokens, row["tokens"].get<std::vector<int32_t>>());
    const std::vector<float>& logits = answers[i].generation_logits;
    ASSERT_EQ(logits.size(), 12 * vocabulary);
    for (size_t j = 0; j < vocabulary; ++j) {
      ASSERT_NEAR(logits[j], row["first_logits"][j].get<float>(), tolerance);
      ASSERT_NEAR(logits[logits.size() - vocabulary + j], row["last_logits"][j].get<float>(), tolerance);
    }
  }
}

class NemoModels : public testing::TestWithParam<const char*> {
 protected:
  const NemoGolden golden_{GetParam()};
  TempDir root_;
};
INSTANTIATE_TEST_SUITE_P(Goldens, NemoModels,
                         testing::Values("gpt2b", "gpt3", "core", "llama", "nemotron", "mixtral", "mixtral_grouped"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(NemoModels, AnswerAsTheReference) {
  const fs::path adapter = write(root_.path() / "adapter/a.nemo", golden_.adapter()).parent_path();
  const fs::path archive = write(root_.path() / "model.nemo", golden_.model());
  for (const auto& [tp, pp] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("engine of tp {} pp {}", tp, pp));
    const auto executor =
        openExecutor(testEngine(archive, DType::kFloat32, testBuildConfig(), {.tp_size = tp, .pp_size = pp}),
                     executor::ExecutorConfig(), {adapter});
    expectAnswers(golden_, *executor, 2e-3F);
  }
}

TEST_P(NemoModels, AnyRanksGiveTheSameCheckpoint) {
  const fs::path first = write(root_.path() / "model.nemo", golden_.model());
  convertModel(first, root_.path() / "expected", {});
  const std::string expected = readFile(root_.path() / "expected/rank0.safetensors", 1 << 24);
  int n = 0;
  const auto check = [&](const fs::path& source) {
    SCOPED_TRACE(source.string());
    const fs::path out = root_.path() / fmt::format("checkpoint{}", n++);
    convertModel(source, out, {});
    EXPECT_EQ(readFile(out / "rank0.safetensors", 1 << 24), expected);
    EXPECT_EQ(readJsonFile(out / "config.json"), readJsonFile(root_.path() / "expected/config.json"));
  };
  for (const auto& [tp, pp] : {std::pair(2, 1), {1, 2}, {2, 4}}) {
    const std::string archive = golden_.model(tp, pp), name = fmt::format("tp{}_pp{}", tp, pp);
    check(write(root_.path() / (name + ".nemo"), archive));
    check(unpacked(archive, root_.path() / name));
  }
  check(write(root_.path() / "gzip/any.nemo", gzipped(golden_.model())).parent_path());
}

// The title case: gpt-2b with an adapter on its fused qkv, given in every form.
TEST(NemoTitleCase, TheAdapterAnswersTheSameInEveryForm) {
  const NemoGolden golden("gpt2b");
  const TempDir root;
  const fs::path model = write(root.path() / "gpt2b.nemo", golden.model(2, 1));
  const fs::path nemo = write(root.path() / "nemo/gpt2b_lora.nemo", golden.adapter(2, 1)).parent_path();
  // The PEFT directory has the rows of q, k and v in this order.
  const fs::path peft = root.path() / "peft";
  const Json config = {{"peft_type", "LORA"},
                       {"r", golden.json()["rank"]},
                       {"lora_alpha", golden.json()["alpha"]},
                       {"target_modules", {"qkv_proj"}}};
  write(peft / "adapter_config.json", config.dump());
  std::vector<SafetensorsWriter::Declaration> declarations;
  std::map<std::string, NemoMatrix> tensors;
  for (int64_t layer = 0; layer < golden.layers(); ++layer) {
    for (const Json& row : golden.json()["adapter"]) {
      NemoMatrix matrix = golden.values(row, "gpt2b/adapter", layer);
      const bool is_a = row[0].get<std::string>().ends_with("linear_in.weight");
      if (!is_a) {
        const int64_t d = golden.headSize();
        std::vector<NemoMatrix> parts;
        for (const int64_t part : {0, 1, 2}) {
          for (int64_t head = 0; head < golden.heads(); ++head)
            parts.push_back(rowsOf(matrix, (3 * head + part) * d, d));
        }
        matrix = stacked(parts);
      }
      tensors[fmt::format("base_model.model.model.layers.{}.self_attn.qkv_proj.lora_{}.weight", layer,
                          is_a ? "A" : "B")] = matrix;
    }
  }
  for (const auto& [name, matrix] : tensors)
    declarations.push_back({name, DType::kFloat32, {matrix.rows, matrix.cols}});
  SafetensorsWriter writer(peft / "adapter_model.safetensors", declarations);
  for (const auto& [name, matrix] : tensors) writer.write(name, 0, std::as_bytes(std::span(matrix.values)));
  writer.finish();

  const auto command = [](const std::vector<std::string>& arguments) {
    const CommandResult result = runChorus(arguments);
    EXPECT_EQ(result.status, 0) << result.errors;
  };
  command({"convert", "--model_dir", model, "--output_dir", root.path() / "checkpoint", "--dtype", "float32"});
  command({"build", "--checkpoint_dir", root.path() / "checkpoint", "--output_dir", root.path() / "engine",
           "--lora_plugin", "float32", "--lora_dir", nemo, "--lora_ckpt_source", "nemo", "--max_seq_len", "64"});
  std::vector<std::string> adapters = {nemo, nemo / "gpt2b_lora.nemo", peft};
  for (const std::string& from : {nemo.string(), peft.string()}) {
    const fs::path tensors_dir = root.path() / fmt::format("tensors{}", adapters.size());
    command({"lora-convert", "-i", from, "-o", tensors_dir, "--storage-type", "float32"});
    adapters.push_back(tensors_dir);
  }
  for (const Json& row : golden.json()["answers"]) {
    std::string prompt;
    for (const Json& token : row["prompt"]) prompt += (prompt.empty() ? "" : ",") + token.dump();
    std::string prompts, expected;
    for (const Json& token : row["tokens"]) expected += (expected.empty() ? "" : ",") + token.dump();
    std::vector<std::string> run = {"run",
                                    "--engine_dir",
                                    root.path() / "engine",
                                    "--max_output_len",
                                    "12",
                                    "--end_id",
                                    "-1",
                                    "--input_file",
                                    root.path() / "prompts.csv",
                                    "--output_csv",
                                    root.path() / "out.csv",
                                    "--lora_dir"};
    run.insert(run.end(), adapters.begin(), adapters.end());
    run.emplace_back("--lora_task_uids");
    std::string all;
    for (size_t i = 0; i < adapters.size(); ++i) {
      prompts += prompt + "\n";
      all += expected + "\n";
      run.push_back(row["adapter"].get<bool>() ? std::to_string(i) : "-1");
    }
    write(root.path() / "prompts.csv", prompts);
    command(run);
    EXPECT_EQ(readFile(root.path() / "out.csv", 1 << 16), all);
  }
}

// NeMo's Llama is the same model as Hugging Face's.
TEST(NemoLlama, HasTheCheckpointOfTheHuggingFaceModel) {
  const TempDir root;
  std::mt19937_64 rng(11);
  RandomLlama model;
  model.layers = 2;
  fillWeights(model, rng);
  writeModel(model, root.path() / "hf");
  const auto matrix = [&](const std::string& name) {
    const PlainTensor& tensor = model.tensors.at(name);
    return NemoMatrix{tensor.shape[0], tensor.shape.size() > 1 ? tensor.shape[1] : 0, tensor.values};
  };
  std::vector<std::vector<NemoTensor>> layers;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string hf = fmt::format("model.layers.{}.", layer), core = "model.decoder.layers.{layer}.";
    const auto linear = [&](const std::string& name) { return matrix(hf + name + ".weight"); };
    const NemoMatrix qkv =
        stacked({linear("self_attn.q_proj"), linear("self_attn.k_proj"), linear("self_attn.v_proj")});
    layers.push_back(
        {{core + "self_attention.linear_qkv.weight", byKvGroup(qkv, model.heads, model.kv_heads, model.head_size),
          NemoCut::kRows},
         {core + "self_attention.linear_proj.weight", linear("self_attn.o_proj"), NemoCut::kColumns},
         {core + "self_attention.linear_qkv.layer_norm_weight", linear("input_layernorm"), NemoCut::kWhole},
         {core + "mlp.linear_fc1.layer_norm_weight", linear("post_attention_layernorm"), NemoCut::kWhole},
         {core + "mlp.linear_fc1.weight", stacked({linear("mlp.gate_proj"), linear("mlp.up_proj")}), NemoCut::kHalves},
         {core + "mlp.linear_fc2.weight", linear("mlp.down_proj"), NemoCut::kColumns}});
  }
  const std::string config = fmt::format(
      "mcore_gpt: true\nnum_layers: {}\nhidden_size: {}\nnum_attention_heads: {}\nnum_query_groups: {}\nkv_channels: "
      "{}\n"
      "ffn_hidden_size: {}\nactivation: fast-swiglu\nnormalization: rmsnorm\nbias: false\nposition_embedding_type: "
      "rope\n"
      "share_embeddings_and_output_weights: false\nmax_position_embeddings: 64\n",
      model.layers, model.hidden, model.heads, model.kv_heads, model.head_size, model.mlp);
  // The vocabulary is odd, so the ranks that share it are only those of the pipeline.
  const TestNemo nemo = {
      config + "pipeline_model_parallel_size: 2\n",
      nemoCheckpoints(layers,
                      {{"model.embedding.word_embeddings.weight", matrix("model.embed_tokens.weight"), NemoCut::kRows}},
                      {{"model.decoder.final_layernorm.weight", matrix("model.norm.weight"), NemoCut::kWhole},
                       {"model.output_layer.weight", matrix("lm_head.weight"), NemoCut::kRows}},
                      1, 2)};
  convertModel(write(root.path() / "llama.nemo", nemo.build()), root.path() / "from_nemo", {.dtype = DType::kFloat32});
  convertModel(root.path() / "hf", root.path() / "from_hf", {.dtype = DType::kFloat32});
  EXPECT_EQ(readFile(root.path() / "from_nemo/rank0.safetensors", 1 << 24),
            readFile(root.path() / "from_hf/rank0.safetensors", 1 << 24));
  EXPECT_EQ(readJsonFile(root.path() / "from_nemo/config.json")["architecture"], "LlamaForCausalLM");
}

TEST(NemoModel, ConfigsThatNeedMoreAreRefused) {
  const NemoGolden golden("gpt2b");
  const TempDir root;
  const auto refusal = [&](const Json& more) {
    const fs::path model = write(root.path() / "m.nemo", golden.model(1, 1, more));
    return errorOf([&] { convertModel(model, root.path() / "out", {}); });
  };
  EXPECT_THAT(
      refusal({{"num_moe_experts", 8}}),
      HasSubstr("m.nemo: model_config.yaml: 'num_moe_experts': a mixture of experts is supported with rmsnorm"));
  EXPECT_THAT(refusal({{"position_embedding_type", "xpos"}}),
              HasSubstr("'position_embedding_type' xpos is not supported"));
  EXPECT_THAT(refusal({{"activation", "mish"}}), HasSubstr("'activation' mish is not supported"));
  EXPECT_THAT(refusal({{"normalization", "lpn"}}), HasSubstr("'normalization' lpn is not supported"));
  EXPECT_THAT(refusal({{"window_size", {4096, 0}}}), HasSubstr("'window_size' is [4096,0], which is not supported"));
  EXPECT_THAT(refusal({{"transformer_block_type", "post_ln"}}), HasSubstr("'transformer_block_type'"));
  EXPECT_THAT(refusal({{"rotary_percentage", 1.5}}), HasSubstr("'rotary_percentage'"));
  EXPECT_THAT(refusal({{"num_query_groups", 3}}), HasSubstr("'num_query_groups' 3"));
  EXPECT_THAT(refusal({{"num_layers", 5}}), HasSubstr("Required but not provided tensors: layers.4."));
  EXPECT_THAT(refusal({{"num_layers", 3}}), HasSubstr("the weights and"));
  EXPECT_THAT(refusal({{"hidden_size", 48}}), HasSubstr("has shape [40, 32]"));
  EXPECT_THAT(refusal({{"bias", true}}), HasSubstr("Required but not provided tensors"));
}

TEST(NemoModel, TwoByTwoRanksJoinedAreTheOriginal) {
  const TempDir root;
  const fs::path model = write(root.path() / "m.nemo", NemoGolden("gpt2b").model());
  convertModel(model, root.path() / "one", {});
  convertModel(model, root.path() / "four", {.tp_size = 2, .pp_size = 2});
  convertModel(root.path() / "four", root.path() / "joined", {});
  for (const char* name : {"config.json", "rank0.safetensors"}) {
    EXPECT_TRUE(readFile(root.path() / "one" / name, size_t{1} << 30) ==
                readFile(root.path() / "joined" / name, size_t{1} << 30))
        << name;
  }
}

TEST(NemoModel, DistributedCheckpointsAreNamed) {
  const TempDir root;
  const TestNemo nemo = {"num_layers: 1\n", {}, {{"./model_weights/__0_0.distcp", "x"}}};
  const CommandResult result = runChorus(
      {"convert", "--model_dir", write(root.path() / "m.nemo", nemo.build()), "--output_dir", root.path() / "out"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.errors, HasSubstr("a distributed checkpoint (torch_dist)"));
}

TEST(NemoModel, IsServedWithTheTokenizerOfItsArchive) {
  const NemoGolden golden("gpt2b");
  const TempDir root;
  const std::string tokenizer = readFile(sourceDir() / "tests/goldens/text/sentencepiece/unigram_bytes.model", 1 << 20);
  const Json config = {{"library", "sentencepiece"}, {"type", nullptr}, {"model", "nemo:0123_tokenizer.model"}};
  server::ServeOptions options;
  options.cache_directory = (root.path() / "cache").string();
  options.model_directory =
      write(root.path() / "with.nemo", golden.model(2, 1, {{"tokenizer", config}, {"override_vocab_size", nullptr}},
                                                    {{"./0123_tokenizer.model", tokenizer}}));
  const server::ServedEngine served = server::locateEngine(options);
  EXPECT_TRUE(fs::exists(served.engine_directory / "rank0.engine"));
  EXPECT_EQ(readFile(served.tokenizer_directory / "tokenizer.model", 1 << 20), tokenizer);
  EXPECT_EQ(served.tokenizer_directory.parent_path(), root.path() / "cache/tokenizers");
  EXPECT_EQ(served.text->decode(served.text->encode("one two", true), true), "one two");
  EXPECT_EQ(server::locateEngine(options).engine_directory, served.engine_directory);

  options.model_directory = write(root.path() / "without.nemo", golden.model());
  EXPECT_THAT(
      errorOf([&] { server::locateEngine(options); }),
      testing::AllOf(HasSubstr("its config names somebody/model of huggingface"), HasSubstr("--tokenizer_dir")));
  options.model_directory = write(root.path() / "adapter.nemo", golden.adapter());
  EXPECT_THAT(errorOf([&] { server::locateEngine(options); }), HasSubstr("a NeMo adapter, not a model"));
}

TEST(NemoModel, ExpertsThatNeedMoreAreRefused) {
  NemoGolden golden("mixtral");
  const TempDir root;
  const auto refusal = [&](const Json& more) {
    const fs::path model = write(root.path() / "m.nemo", golden.model(1, 1, more));
    return errorOf([&] { convertModel(model, root.path() / "out", {}); });
  };
  EXPECT_THAT(refusal({{"moe_router_load_balancing_type", "sinkhorn"}}),
              HasSubstr("'moe_router_load_balancing_type' sinkhorn is not supported"));
  EXPECT_THAT(refusal({{"moe_shared_expert_intermediate_size", 16}}),
              HasSubstr("'moe_shared_expert_intermediate_size' is 16, which is not supported"));
  EXPECT_THAT(refusal({{"expert_model_parallel_size", 2}}), HasSubstr("'expert_model_parallel_size' is 2"));
  EXPECT_THAT(refusal({{"moe_router_score_function", "sigmoid"}}), HasSubstr("'moe_router_score_function'"));
  EXPECT_THAT(refusal({{"moe_layer_freq", 2}}), HasSubstr("'moe_layer_freq' is 2"));
  EXPECT_THAT(refusal({{"moe_router_topk", 5}}), HasSubstr("4 experts, of which a token takes 5"));
  EXPECT_THAT(refusal({{"num_moe_experts", 5}}), HasSubstr("mlp.router.weight' has shape [4, 32]"));
  EXPECT_THAT(refusal({{"num_moe_experts", 3000000000}}), HasSubstr("'num_moe_experts' is 3000000000"));
  EXPECT_THAT(refusal({{"moe_ffn_hidden_size", 20}}), HasSubstr("linear_fc1.weight' has shape [80, 32]"));
  EXPECT_THAT(refusal({{"num_moe_experts", nullptr}}), HasSubstr("Required but not provided tensors"));
  golden.addTensor({"model.decoder.layers.{}.mlp.router.expert_bias", {4}, 0, 1});
  EXPECT_THAT(refusal(Json::object()), HasSubstr("expert_bias' is none of MixtralForCausalLM"));
  golden.addTensor({"model.decoder.layers.{}.mlp.experts.weight1", {32, 320}, 0, 1});
  EXPECT_THAT(refusal(Json::object()), HasSubstr("mlp.experts.weight1' holds all experts"));
}

TEST(NemoModel, MutatedArchivesAreRefusedInOneLineOrConverted) {
  const NemoGolden golden("gpt2b");
  const TempDir root;
  const std::string archive = golden.model();
  const std::vector<uint8_t> valid(archive.begin(), archive.end());
  constexpr int kMutations = 10000;
  int refused = 0;
  for (uint64_t seed = 1; seed <= kMutations; ++seed) {
    std::mt19937_64 rng(seed);
    const std::vector<uint8_t> bytes = mutateBytes(valid, rng);
    const fs::path path = root.path() / "work" / "m.nemo";
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    const std::string line = errorOf([&] { openSource(path, {}); });
    refused += line.empty() ? 0 : 1;
    ASSERT_EQ(line.find('\n'), std::string::npos) << "seed " << seed;
  }
  EXPECT_GT(refused, kMutations / 10);
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path()), fs::directory_iterator()), 1)
      << "nothing is written elsewhere";
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path() / "work"), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace chorus::test
