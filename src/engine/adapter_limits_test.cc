#include "engine/adapter_limits.h"

#include <gtest/gtest.h>

#include "base/testing/error_of.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

Adapter adapterOn(std::initializer_list<int32_t> ids) {
  Adapter adapter{.name = "mine"};
  for (const int32_t id : ids) adapter.modules.push_back({.module_id = id, .module_name = "module", .rank = 2});
  return adapter;
}

TEST(AdapterLimits, PluginsMustBeBuiltIn) {
  BuildConfig build;
  Adapter adapter = adapterOn({kAttnQ});
  EXPECT_EQ(errorOf([&] { checkServable(adapter, build); }),
            "adapter 'mine': the engine was built without --lora_plugin");
  build.lora_plugin = true;
  EXPECT_EQ(errorOf([&] { checkServable(adapter, build); }), "");
  adapter.uses_dora = true;
  EXPECT_EQ(errorOf([&] { checkServable(adapter, build); }),
            "adapter 'mine' uses DoRA: the engine was built without --dora_plugin");
  build.dora_plugin = true;
  EXPECT_EQ(errorOf([&] { checkServable(adapter, build); }), "");
}

TEST(AdapterLimits, TargetModulesAreThoseEnabled) {
  BuildConfig build;
  build.lora_plugin = true;
  build.lora_target_modules = {"attn_q", "mlp_gate_up"};
  EXPECT_EQ(errorOf([&] { checkServable(adapterOn({kAttnQ}), build); }), "");
  EXPECT_EQ(errorOf([&] { checkServable(adapterOn({kMlpHTo4H, kMlpGate}), build); }), "") << "halves of mlp_gate_up";
  EXPECT_EQ(errorOf([&] { checkServable(adapterOn({kTokenEmbedding, kOutputHead}), build); }), "")
      << "the list has no names for them";
  for (const int32_t id : {kAttnK, kMlp4HToH}) {
    EXPECT_EQ(errorOf([&] { checkServable(adapterOn({kAttnQ, id}), build); }),
              "adapter 'mine': lora module module not enabled for this model (--lora_target_modules)")
        << id;
  }
}

TEST(AdapterLimits, ElementsAreAllValues) {
  Adapter adapter = adapterOn({kAttnQ, kAttnK});
  adapter.modules[0].in = 3;
  adapter.modules[0].out = 5;
  adapter.modules[1].rank = 4;
  adapter.modules[1].in = 7;
  EXPECT_EQ(adapterElements(adapter), 2 * (3 + 5) + 4 * 7);
  adapter.weights.push_back({.rows = 10, .cols = 3});
  EXPECT_EQ(adapterElements(adapter), 44 + 30);
  adapter.embedding_tokens = {.tokens = {4}, .cols = 5};
  adapter.head_tokens = {.tokens = {4, 7}, .cols = 3};
  EXPECT_EQ(adapterElements(adapter), 74 + 11);
}

}  // namespace
}  // namespace chorus
