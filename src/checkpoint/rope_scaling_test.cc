#include "checkpoint/rope_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const RopeLengths kLengths = {.max_position_embeddings = 4096};

RopeScaling read(const Json& object, const RopeLengths& lengths = kLengths) {
  return readRopeScaling(object, object.at("type").get<std::string>(), "c", lengths, {"rope_theta"});
}
std::string refusal(const Json& object, const RopeLengths& lengths = kLengths) {
  return errorOf([&] { read(object, lengths); });
}
Json with(Json object, const char* key, const Json& value) {
  object[key] = value;
  return object;
}

const Json kYarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
const Json kLongRope = {{"type", "longrope"},
                        {"short_factor", {1.0, 1.5}},
                        {"long_factor", {2.0, 3.5}},
                        {"original_max_position_embeddings", 1024}};

TEST(RopeScalingTest, YarnsAttentionFactorIsTransformers) {
  const RopeScaling yarn = read(kYarn);
  EXPECT_EQ(yarn.type, RopeScalingType::kYarn);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 1.138629436111989);
  EXPECT_EQ(yarn.beta_fast, 32.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_TRUE(yarn.truncate);
  const Json both = with(with(kYarn, "mscale", 0.8), "mscale_all_dim", 0.5);
  EXPECT_DOUBLE_EQ(read(both).attention_factor, 1.0388929752217428);
  EXPECT_DOUBLE_EQ(read(with(both, "mscale_all_dim", 0)).attention_factor, 1.138629436111989) << "both or none";
  EXPECT_DOUBLE_EQ(read(with(both, "attention_factor", 0.75)).attention_factor, 0.75);
  EXPECT_DOUBLE_EQ(read(with(kYarn, "factor", 0.5)).attention_factor, 1.0);
  EXPECT_DOUBLE_EQ(read(with(kYarn, "factor", nullptr)).factor, 4.0) << "4096 / 1024";
  EXPECT_EQ(read(with(kYarn, "beta_fast", 0)).beta_fast, 32.0);
}

TEST(RopeScalingTest, LongRopesAttentionFactorIsTransformers) {
  const RopeScaling scaling = read(kLongRope);
  EXPECT_THAT(scaling.factors.ofShort(), ElementsAre(1.0f, 1.5f));
  EXPECT_THAT(scaling.factors.ofLong(), ElementsAre(2.0f, 3.5f));
  EXPECT_DOUBLE_EQ(scaling.attention_factor, 1.0954451150103321) << "of the ratio 4096 / 1024";
  EXPECT_DOUBLE_EQ(read(with(kLongRope, "factor", 8.0)).attention_factor, 1.140175425099138);
  EXPECT_DOUBLE_EQ(read(with(kLongRope, "factor", 1.0)).attention_factor, 1.0);
  EXPECT_DOUBLE_EQ(read(with(kLongRope, "attention_factor", 1.25)).attention_factor, 1.25);
}

TEST(RopeScalingTest, TheOriginalLengthOutsidePrecedesTheOneInside) {
  EXPECT_EQ(read(kYarn, {.max_position_embeddings = 4096, .original_length = 512}).original_max_position_embeddings,
            512);
  Json without = kYarn;
  without.erase("original_max_position_embeddings");
  EXPECT_EQ(read(without).original_max_position_embeddings, 4096);
  EXPECT_THAT(refusal(without, {}), HasSubstr("'original_max_position_embeddings' must be above 0"));
  EXPECT_THAT(refusal(kYarn, {.original_length = 0}), HasSubstr("'original_max_position_embeddings'"));
}

TEST(RopeScalingTest, ACheckpointKeepsTheValues) {
  const Json llama3 = {
      {"type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"rope_theta", 1e4}};
  for (const Json& object : {Json({{"type", "default"}}), Json({{"type", "linear"}, {"factor", 2.0}}), llama3,
                             with(with(kYarn, "truncate", false), "beta_slow", 2.0), with(kLongRope, "factor", 3.0)}) {
    const RopeScaling scaling = read(object);
    const Json written = ropeScalingJson(scaling);
    if (scaling.type == RopeScalingType::kNone) {
      EXPECT_TRUE(written.is_null());
    } else {
      EXPECT_EQ(read(written, {}), scaling) << written.dump();
    }
  }
  EXPECT_NE(read(kLongRope).factors, read(with(kLongRope, "long_factor", {2.0, 3.0})).factors);
}

TEST(RopeScalingTest, RefusalsNameTheKey) {
  EXPECT_EQ(refusal({{"type", "dynamic"}, {"factor", 2.0}}),
            "c: rope_type 'dynamic' is not supported; default, linear, llama3, yarn and longrope are");
  EXPECT_THAT(refusal(with(kYarn, "beta_medium", 3)),
              HasSubstr("key 'beta_medium' is not supported with rope_type 'yarn'"));
  EXPECT_THAT(refusal(with(kYarn, "short_factor", 3)), HasSubstr("key 'short_factor'"));
  for (const char* key : {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                          "original_max_position_embeddings"}) {
    EXPECT_THAT(refusal(with(kYarn, key, -1.0)), HasSubstr(key));
    EXPECT_THAT(refusal(with(kYarn, key, "wide")), HasSubstr(key));
  }
  EXPECT_THAT(refusal(with(kYarn, "truncate", 1)), HasSubstr("truncate"));
  EXPECT_THAT(refusal({{"type", "yarn"}}), HasSubstr("'factor'"));
  for (const Json& list :
       {Json(3), Json(nullptr), Json({1.0, "x"}), Json({1.0, 0.0}), Json({1.0, -1.0}), Json({1e300})}) {
    EXPECT_THAT(refusal(with(kLongRope, "long_factor", list)), HasSubstr("'long_factor' must be a list of numbers"));
  }
  EXPECT_THAT(refusal(with(kLongRope, "short_mscale", 1.0)), HasSubstr("'short_mscale'"));
}

TEST(RopeScalingTest, RefusesWhatDoesNotFitTheHeads) {
  const auto check = [](const Json& object, int64_t dims, double base) {
    return errorOf([&] { checkRopeScaling(read(object), dims, base, "c"); });
  };
  EXPECT_EQ(check(kLongRope, 4, 1e4), "");
  EXPECT_EQ(check(kLongRope, 6, 1e4), "c: longrope: 'short_factor' has 2 numbers, but a head has 3 rotated pairs");
  EXPECT_THAT(check(with(kLongRope, "long_factor", {1.0}), 4, 1e4), HasSubstr("'long_factor' has 1 numbers"));
  EXPECT_THAT(check(kYarn, 4, 1.0), HasSubstr("needs a base above 1"));
  // log(original length) is 0 or negative.
  for (const double length : {1.0, 0.5}) {
    EXPECT_THAT(check(with(kLongRope, "original_max_position_embeddings", length), 4, 1e4),
                HasSubstr("attention factor"));
  }
}

}  // namespace
}  // namespace chorus
