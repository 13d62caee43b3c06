#include "convert/sources/nemo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/testing/source_fixture.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Pair;

class NemoTokenizerTest : public SourceFixture {
 protected:
  void SetUp() override {
    SourceFixture::SetUp();
    writeFileAtomically(dir_ / "model_config.yaml",
                        "num_layers: 1\nhidden_size: 8\nffn_hidden_size: 16\nnum_attention_heads: 2\n"
                        "max_position_embeddings: 16\nencoder_seq_length: 16\n"
                        "tokenizer: {library: sentencepiece, model: nemo:0123_tokenizer.model}\n");
    writeFileAtomically(dir_ / "model_weights.ckpt", "not read");
  }
  std::string refusal() const {
    return errorOf([&] { nemoReader().tokenizer(dir_); });
  }
  fs::path tokenizer() const { return dir_ / "0123_tokenizer.model"; }
};

TEST_F(NemoTokenizerTest, IsReadWhole) {
  fs::copy_file(test::sourceDir() / "tests/goldens/text/sentencepiece/unigram_bytes.model", tokenizer());
  EXPECT_THAT(nemoReader().tokenizer(dir_), testing::Contains(Pair("tokenizer.model", contents(tokenizer()))));
}

TEST_F(NemoTokenizerTest, OtherFilesAreNotTakenForTokenizers) {
  writeFileAtomically(tokenizer(), "no tokenizer");
  EXPECT_THAT(refusal(), HasSubstr("0123_tokenizer.model"));
  fs::resize_file(tokenizer(), (uintmax_t{64} << 20) + 1);
  EXPECT_THAT(refusal(), HasSubstr("0123_tokenizer.model: a tokenizer of 67108865 bytes; the limit is 67108864"));
}

}  // namespace
}  // namespace chorus
