#include "formats/nemo_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::vector<std::string>;

std::string refusalOf(const Names& names) {
  return errorOf([&] { nemoLayout(names, "f"); });
}

TEST(NemoLayoutTest, ACheckpointOfOneRank) {
  const NemoLayout layout = nemoLayout(Names{"tokenizer.model", "model_weights.ckpt", "model_config.yaml"}, "f");
  EXPECT_EQ(layout.config, "model_config.yaml");
  EXPECT_EQ(layout.tp_size, 1);
  EXPECT_EQ(layout.pp_size, 1);
  EXPECT_THAT(layout.checkpoints, ElementsAre("model_weights.ckpt"));
}

TEST(NemoLayoutTest, SeveralRanks) {
  const NemoLayout tp = nemoLayout(
      Names{"m/mp_rank_01/model_weights.ckpt", "m/model_config.yaml", "m/mp_rank_00/model_weights.ckpt"}, "f");
  EXPECT_EQ(tp.config, "m/model_config.yaml");
  EXPECT_THAT(tp.checkpoints, ElementsAre("m/mp_rank_00/model_weights.ckpt", "m/mp_rank_01/model_weights.ckpt"));
  Names names = {"model_config.yaml"};
  for (const char* name :
       {"tp_rank_00_pp_rank_001", "tp_rank_01_pp_rank_000", "tp_rank_01_pp_rank_001", "tp_rank_00_pp_rank_000"}) {
    names.push_back(std::string(name) + "/model_weights.ckpt");
  }
  const NemoLayout both = nemoLayout(names, "f");
  EXPECT_EQ(both.tp_size, 2);
  EXPECT_EQ(both.pp_size, 2);
  EXPECT_THAT(both.checkpoints, ElementsAre(names[4], names[2], names[1], names[3]));
  names.pop_back();
  EXPECT_THAT(refusalOf(names), HasSubstr("tensor-parallel rank 0 and pipeline rank 0 is missing"));
}

TEST(NemoLayoutTest, RefusesWhatContradictsItself) {
  EXPECT_THAT(refusalOf({"model_weights.ckpt"}), HasSubstr("f: it holds no model_config.yaml"));
  EXPECT_THAT(refusalOf({"a/model_config.yaml", "b/model_config.yaml"}), HasSubstr("several model_config.yaml"));
  EXPECT_THAT(refusalOf({"model_config.yaml", "a/model_weights.ckpt"}), HasSubstr("f: it holds no model_weights.ckpt"));
  EXPECT_THAT(refusalOf({"model_config.yaml", "model_weights.ckpt", "mp_rank_00/model_weights.ckpt"}),
              HasSubstr("checkpoints of several kinds"));
  EXPECT_THAT(refusalOf({"model_config.yaml", "mp_rank_0/model_weights.ckpt", "mp_rank_00/model_weights.ckpt"}),
              HasSubstr("the same rank"));
  EXPECT_THAT(refusalOf({"model_config.yaml", "mp_rank_4096/model_weights.ckpt"}), HasSubstr("beyond 4096"));
}

TEST(NemoLayoutTest, NamesADistributedCheckpoint) {
  EXPECT_THAT(refusalOf({"model_config.yaml", "model_weights/__0_0.distcp", "model_weights/common.pt"}),
              HasSubstr("a distributed checkpoint (torch_dist)"));
  EXPECT_THAT(refusalOf({"model_config.yaml", "model_weights/model.decoder.weight/.zarray"}),
              HasSubstr("a distributed checkpoint (zarr)"));
  EXPECT_THAT(refusalOf({"model_config.yaml", "model_weights/metadata.json"}),
              HasSubstr("a distributed checkpoint (torch_dist or zarr)"));
}

TEST(NemoLayoutTest, ReadsTheConfig) {
  const NemoLayout layout = nemoLayout(Names{"model_config.yaml", "model_weights.ckpt"}, "f");
  EXPECT_EQ(parseNemoConfig("num_layers: 2\ntensor_model_parallel_size: 1\n", layout, "c")["num_layers"], 2);
  EXPECT_THAT(errorOf([&] { parseNemoConfig("tensor_model_parallel_size: 2\n", layout, "c"); }),
              HasSubstr("c: 'tensor_model_parallel_size' is 2, but there are checkpoints of 1"));
  EXPECT_THAT(errorOf([&] { parseNemoConfig("- 1\n", layout, "c"); }), HasSubstr("c: expected a map"));
}

}  // namespace
}  // namespace chorus
