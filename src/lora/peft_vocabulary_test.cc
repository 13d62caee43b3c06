// Adapters of the embedding and the output head: added and trained tokens, tied heads and biases of heads.
#include <gmock/gmock.h>

#include <limits>

#include "lora/shard.h"
#include "lora/testing/peft_family.h"

namespace chorus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PeftVocabularyTest : public PeftFamilyTest {};

// A model of 7 tokens whose output head has a bias.
class PeftHeadBiasTest : public PeftVocabularyTest {
 protected:
  PeftHeadBiasTest() {
    model_.config.vocab_size = 7;
    for (WeightRow& row : model_.table) {
      if (row.slot != slotOf(TableId::kTokens) && row.slot != slotOf(LinearId::kHead)) continue;
      row.shape[0] = row.sources[0].rows = 7;
    }
    model_.table.push_back({.name = "lm_head.bias",
                            .shape = {7},
                            .slot = kHeadBias,
                            .stage = Stage::kLast,
                            .shard = {.axis = ShardRule::Axis::kRows, .pad_rows = true},
                            .sources = {{"lm_head.bias", 0, 7}}});
  }
  // The bias on each of two tensor-parallel ranks.
  std::pair<std::vector<float>, std::vector<float>> shares(const Adapter& adapter) {
    ModelConfig config = model_.config;
    config.mapping.tp_size = 2;
    return {weightsOf(shardAdapter(adapter, config, model_.table, 0), kHeadBias),
            weightsOf(shardAdapter(adapter, config, model_.table, 1), kHeadBias)};
  }
  const WeightSlot kHeadBias = slotOf(LinearId::kHead).bias();
};

TEST_F(PeftHeadBiasTest, ASavedHeadHasItsBias) {
  config_["modules_to_save"] = {"lm_head"};
  put(kHead + "weight", {7, 4}, 10);
  EXPECT_THAT(refusal(), HasSubstr("no tensor of 'lm_head.bias'"));
  put(kHead + "bias", {8}, 50);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lm_head.bias"), HasSubstr("has shape [8], expected [7]")));
  put(kHead + "bias", {7}, 50);
  const auto [first, second] = shares(read());
  EXPECT_THAT(first, ElementsAre(50, 51, 52, 53));
  EXPECT_THAT(second, ElementsAre(54, 55, 56, 0));
}

TEST_F(PeftHeadBiasTest, ABiasGrowsWithTheVocabulary) {
  put(kEmbedding + "weight", {9, 4}, 90);
  put(kHead + "weight", {9, 4}, 10);
  put(kHead + "bias", {9}, 50);
  const Adapter adapter = read();
  EXPECT_EQ(adapter.vocab_size, 9);
  const auto [first, second] = shares(adapter);
  EXPECT_THAT(first, ElementsAre(50, 51, 52, 53, 57, 58));
  EXPECT_THAT(second, ElementsAre(54, 55, 56, 0, 57, 58));
}

TEST_F(PeftVocabularyTest, AHeadWithoutABiasGetsNone) {
  put(kHead + "weight", {8, 4}, 10);
  put(kHead + "bias", {8}, 50);
  EXPECT_THAT(refusal(), HasSubstr("lm_head.bias"));
}

TEST_F(PeftVocabularyTest, TrainedTokensInAscendingOrder) {
  config_["trainable_token_indices"] = {5, 2};
  EXPECT_THAT(refusal(), HasSubstr("no tensor of the trained tokens of 'model.embed_tokens'"));
  put(kEmbedding + "token_adapter.trainable_tokens_delta", {2, 4});
  Adapter adapter = read();
  EXPECT_THAT(adapter.embedding_tokens.tokens, ElementsAre(2, 5));
  EXPECT_THAT(adapter.embedding_tokens.rows, ElementsAre(5, 6, 7, 8, 1, 2, 3, 4));
  EXPECT_TRUE(adapter.head_tokens.empty());
  config_["trainable_token_indices"] = {5, 9};
  EXPECT_THAT(refusal(), HasSubstr("names token 9, the model has 8"));
  config_["trainable_token_indices"] = {5, 2};
  model_.config.tie_word_embeddings = true;
  EXPECT_THAT(read().head_tokens.tokens, ElementsAre(2, 5));
  config_["trainable_token_indices"] = {{"embed_tokens", {5, 2}}, {"lm_head", {1}}};
  put(kHead + "token_adapter.trainable_tokens_delta", {1, 4});
  adapter = read();
  EXPECT_THAT(adapter.head_tokens.tokens, ElementsAre(1));
  config_["ensure_weight_tying"] = true;
  EXPECT_THAT(refusal(), HasSubstr("ensure_weight_tying"));
  config_["ensure_weight_tying"] = false;
  for (const Json& wrong : {Json{5}, Json{5, 5}, Json{5, 9}, Json{-1, 2}, Json{{"q_proj", {5, 2}}}, Json("x")}) {
    config_["trainable_token_indices"] = wrong;
    EXPECT_THAT(refusal(), HasSubstr("trainable_token")) << wrong;
  }
}

TEST_F(PeftVocabularyTest, WithoutValuesTrainedTokensHaveNoRows) {
  config_["trainable_token_indices"] = {{"embed_tokens", {5, 2}}, {"lm_head", {1}}};
  put(kEmbedding + "token_adapter.trainable_tokens_delta", {2, 4});
  put(kHead + "token_adapter.trainable_tokens_delta", {1, 4});
  save();
  FileReader files(Directory::open(dir_));
  Adapter shapes = readPeftAdapter(readPeftHeaders(files, size_t{1} << 20).parse(), "a", {model_.config, model_.table});
  for (const int32_t tp_size : {1, 2}) {
    model_.config.mapping.tp_size = tp_size;
    const Adapter part = shardAdapter(shapes, model_.config, model_.table, 0);
    EXPECT_THAT(part.embedding_tokens.tokens, ElementsAre(2, 5));
    EXPECT_EQ(part.embedding_tokens.elements(), 8);
    EXPECT_THAT(part.head_tokens.tokens, ElementsAre(1));
    EXPECT_TRUE(part.embedding_tokens.rows.empty() && part.head_tokens.rows.empty());
  }
}

// PEFT's list is for the module that get_input_embeddings() returns, whatever its name; the object names a module by
// its full name or the end of it.
TEST_F(PeftVocabularyTest, TrainedTokensOfAnEmbeddingOfAnyName) {
  for (const std::string name : {"transformer.wte", "gpt_neox.embed_in", "transformer.word_embeddings",
                                 "model.decoder.embed_tokens", "model.language_model.embed_tokens"}) {
    SCOPED_TRACE(name);
    for (WeightRow& row : model_.table) {
      if (row.slot == slotOf(TableId::kTokens)) row.sources = {{name + ".weight", 0, 8}};
    }
    tensors_.erase(kEmbedding + "token_adapter.trainable_tokens_delta");
    const std::string tensor = kBase + name + ".token_adapter.trainable_tokens_delta";
    put(tensor, {2, 4});
    const std::string last = name.substr(name.rfind('.') + 1);
    for (const Json& form : {Json({5, 2}), Json({{name, {5, 2}}}), Json({{last, {5, 2}}})}) {
      config_["trainable_token_indices"] = form;
      EXPECT_THAT(read().embedding_tokens.tokens, ElementsAre(2, 5)) << form;
    }
    config_["trainable_token_indices"] = {{"", {5, 2}}};
    EXPECT_THAT(refusal(), HasSubstr("names ''"));
    tensors_.erase(tensor);
  }
}

TEST_F(PeftVocabularyTest, AddedTokens) {
  put(kEmbedding + "weight", {10, 4});
  put(kHead + "weight", {10, 4});
  const Adapter adapter = read();
  EXPECT_EQ(adapter.vocab_size, 10);
  EXPECT_EQ(adapter.input_vocab_size, 10);
  put(kHead + "weight", {11, 4});
  EXPECT_THAT(refusal(), HasSubstr("has rows for 11 tokens, the embedding for 10"));
  put(kHead + "weight", {7, 4});
  EXPECT_THAT(refusal(), HasSubstr("fewer are not served"));

  // With two ranks, each rank has half of the model's tokens and all added tokens.
  put(kHead + "weight", {10, 4}, 0);
  model_.config.mapping.tp_size = 2;
  const Adapter part = shardAdapter(read(), model_.config, model_.table, 1);
  const std::vector<float> rows = weightsOf(part, slotOf(LinearId::kHead));
  ASSERT_EQ(rows.size(), 24u);
  EXPECT_EQ(rows[0], 16);
  EXPECT_EQ(rows[16], 32);
}

TEST_F(PeftVocabularyTest, TrainedTokensBringAddedOnesWithoutAGap) {
  const std::string embedding_rows = kEmbedding + "token_adapter.trainable_tokens_delta";
  const std::string head_rows = kHead + "token_adapter.trainable_tokens_delta";
  config_["trainable_token_indices"] = {9, 4, 8};
  put(embedding_rows, {3, 4});
  Adapter adapter = read();
  EXPECT_EQ(adapter.input_vocab_size, 10);
  EXPECT_EQ(adapter.vocab_size, 0) << "the output head has no rows for them";

  // Ranks keep their rows of the base's table: token 4 is on the second rank, which also has the added tokens.
  model_.config.mapping.tp_size = 2;
  model_.config.use_parallel_embedding = true;
  EXPECT_TRUE(shardAdapter(adapter, model_.config, model_.table, 0).embedding_tokens.empty());
  const AdapterTokens second = shardAdapter(adapter, model_.config, model_.table, 1).embedding_tokens;
  EXPECT_THAT(second.tokens, ElementsAre(4, 8, 9));
  model_.config.mapping.tp_size = 1;

  config_["trainable_token_indices"] = {4, 8, 10};
  EXPECT_THAT(refusal(), HasSubstr("names token 10, the model has 9"));
  config_["trainable_token_indices"] = {{"embed_tokens", {9, 4, 8}}, {"lm_head", {8}}};
  put(head_rows, {1, 4});
  adapter = read();
  EXPECT_EQ(adapter.input_vocab_size, 10);
  EXPECT_EQ(adapter.vocab_size, 9);
  config_["trainable_token_indices"] = {{"embed_tokens", {1, 4, 8}}, {"lm_head", {8, 9}}};
  put(head_rows, {2, 4});
  EXPECT_THAT(refusal(), HasSubstr("gives lm_head rows for 10 tokens, the embedding for 9"));

  // A table that is saved with the adapter sets the number of tokens.
  config_["trainable_token_indices"] = {9, 4, 8};
  tensors_.erase(head_rows);
  put(kEmbedding + "weight", {9, 4});
  EXPECT_THAT(refusal(), HasSubstr("names token 9, the model has 9"));
  tensors_.erase(kEmbedding + "weight");
  put(kHead + "weight", {10, 4});
  EXPECT_EQ(read().vocab_size, 10);
  tensors_.erase(kHead + "weight");
  model_.config.tie_word_embeddings = true;
  EXPECT_EQ(read().vocab_size, 10);
}

TEST_F(PeftVocabularyTest, ATiedEmbeddingIsTheOutputHeadTooUnlessItWasSavedAsAModule) {
  model_.config.tie_word_embeddings = true;
  put(kEmbedding + "weight", {8, 4});
  EXPECT_EQ(read().weights.size(), 2u);
  config_["modules_to_save"] = {"embed_tokens"};
  EXPECT_EQ(read().weights.size(), 1u);
  config_["ensure_weight_tying"] = true;
  EXPECT_EQ(read().weights.size(), 2u);
}

TEST_F(PeftVocabularyTest, ATiedOutputHeadHasTheEmbeddingsAdapterWhereThatIsAskedFor) {
  model_.config.tie_word_embeddings = true;
  config_["target_modules"] = {"q_proj", "embed_tokens"};
  put(kEmbedding + "lora_embedding_A", {2, 8});
  put(kEmbedding + "lora_embedding_B", {4, 2});
  put(kHead + "lora_A.weight", {2, 4});
  put(kHead + "lora_B.weight", {8, 2});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lm_head.lora_A.weight"), HasSubstr("is not among the modules")));
  config_["ensure_weight_tying"] = true;
  EXPECT_EQ(moduleOf(read(), kOutputHead).out, 8);
}

// A rank's rows of the head are its share of the model's tokens, then all added tokens.
TEST_F(PeftVocabularyTest, TrainedTokensOfTheHeadAreWhereARankHasTheirRows) {
  put(kEmbedding + "weight", {10, 4});
  put(kHead + "weight", {10, 4});
  config_["trainable_token_indices"] = {{"lm_head", {1, 5, 8, 9}}};
  put(kHead + "token_adapter.trainable_tokens_delta", {4, 4}, 0);
  model_.config.mapping.tp_size = 2;
  const Adapter whole = read();
  const AdapterTokens first = shardAdapter(whole, model_.config, model_.table, 0).head_tokens;
  EXPECT_THAT(first.tokens, ElementsAre(1, 4, 5));
  EXPECT_THAT(first.rows, ElementsAre(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15));
  const AdapterTokens second = shardAdapter(whole, model_.config, model_.table, 1).head_tokens;
  EXPECT_THAT(second.tokens, ElementsAre(1, 4, 5));
  EXPECT_THAT(second.rows, ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

// PEFT uses the embedding's matrices for the tied head, whatever rank the head's own name would have.
TEST_F(PeftVocabularyTest, ATiedHeadHasTheRankOfTheEmbeddingAndTheScaleOfItsName) {
  model_.config.tie_word_embeddings = true;
  config_["ensure_weight_tying"] = true;
  config_["target_modules"] = {"q_proj", "embed_tokens"};
  config_["rank_pattern"] = {{"embed_tokens", 3}, {"lm_head", 8}};
  put(kEmbedding + "lora_embedding_A", {3, 8});
  put(kEmbedding + "lora_embedding_B", {4, 3});
  put(kHead + "lora_A.weight", {3, 4});
  put(kHead + "lora_B.weight", {8, 3});
  const Adapter adapter = read();
  EXPECT_EQ(moduleOf(adapter, kTokenEmbedding).rank, 3);
  EXPECT_EQ(moduleOf(adapter, kOutputHead).rank, 3);
  EXPECT_FLOAT_EQ(moduleOf(adapter, kOutputHead).scale, 0.5f);
  config_["ensure_weight_tying"] = false;
  config_["target_modules"] = {"q_proj", "embed_tokens", "lm_head"};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lm_head.lora_"), HasSubstr("the adapter is of another model or rank")));
}

// PEFT never adapts the output head or the embedding with all-linear, and drops such tensors when it loads them.
TEST_F(PeftVocabularyTest, AllLinearLeavesOutTheEmbeddingAndTheHead) {
  config_["target_modules"] = "all-linear";
  EXPECT_EQ(refusal(), "");
  put(kHead + "lora_A.weight", {2, 4});
  put(kHead + "lora_B.weight", {8, 2});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lm_head.lora_"), HasSubstr("the output head, which all-linear")));
  config_["target_modules"] = {"q_proj", "lm_head"};
  EXPECT_EQ(refusal(), "");
}

}  // namespace
}  // namespace chorus
