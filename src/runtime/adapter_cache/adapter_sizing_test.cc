// The sizes of AdapterSizing equal those of a packed adapter that adapts every linear.
#include "runtime/adapter_cache/adapter_sizing.h"

#include "base/testing/error_of.h"
#include "engine/testing/random_engine.h"
#include "lora/adapter.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

struct Case {
  int32_t tp_size = 1;
  bool dora = false;
  executor::LoraStorage storage = executor::LoraStorage::kMODEL;
};

class AdapterSizingTest : public RandomEngineTest, public ::testing::WithParamInterface<Case> {
 protected:
  RankGroup makeGroup() {
    BuildConfig build = smallBuild();
    build.dora_plugin = GetParam().dora;
    const ModelConfig config = randomModel({.tp_size = GetParam().tp_size, .pp_size = 1});
    return RankGroup(RankGroup::loadEngines(makeEngine(config, build, 4711)), {.threads = 1},
                     {.kv_blocks = 8, .lora_format = loraFormat(cache())});
  }
  static executor::PeftCacheConfig cache() {
    executor::PeftCacheConfig config;
    config.setLoraStorage(GetParam().storage);
    return config;
  }

  // An adapter of every linear on every layer.
  Adapter fullAdapter(int64_t rank, const ModelConfig& config) const {
    struct Module {
      int32_t id;
      const char* name;
      int64_t out, in;
    };
    const int64_t hidden = config.hidden_size, mlp = config.intermediate_size;
    const int64_t keys = int64_t{config.num_key_value_heads} * config.head_size;
    const Module modules[] = {
        {kAttnQ, "self_attn.q_proj", hidden, hidden}, {kAttnK, "self_attn.k_proj", keys, hidden},
        {kAttnV, "self_attn.v_proj", keys, hidden},   {kAttnDense, "self_attn.o_proj", hidden, hidden},
        {kMlpHTo4H, "mlp.gate_proj", mlp, hidden},    {kMlp4HToH, "mlp.down_proj", hidden, mlp},
        {kMlpGate, "mlp.up_proj", mlp, hidden}};
    const auto values = std::make_shared<const std::vector<float>>(static_cast<size_t>(rank * (hidden + mlp)), 0.5f);
    Adapter adapter{.name = "full", .max_rank = rank, .uses_dora = GetParam().dora, .content_hash = "hash"};
    adapter.storage.push_back(values);
    const auto* bytes = reinterpret_cast<const std::byte*>(values->data());
    for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      for (const Module& of : modules) {
        AdapterModule module{.module_id = of.id, .module_name = of.name, .layer = layer};
        module.rank = rank;
        module.in = of.in;
        module.out = of.out;
        module.a = module.b = bytes;
        if (GetParam().dora) module.magnitude.assign(static_cast<size_t>(of.out), 1.5f);
        adapter.modules.push_back(std::move(module));
      }
    }
    return adapter;
  }
};

TEST_P(AdapterSizingTest, AFullAdapterTakesWhatItIsSaidTo) {
  const RankGroup ranks = makeGroup();
  const AdapterSizing sizing(ranks.engine(), loraFormat(cache()));
  for (const int32_t rank : {1, 5, 16, 17, 64}) {
    const auto prepared = ranks.prepareAdapter(fullAdapter(rank, ranks.engine().config()));
    EXPECT_EQ(sizing.fullAdapter(rank).bytes, static_cast<int64_t>(prepared->bytes)) << rank;
    EXPECT_EQ(sizing.fullAdapter(rank).elements, prepared->elements) << rank;
  }
}

// The check is exact: a host cache that is one byte smaller than the largest adapter is refused.
TEST_P(AdapterSizingTest, ACacheThatHoldsNoFullAdapterIsRefused) {
  const RankGroup ranks = makeGroup();
  const auto prepared = ranks.prepareAdapter(fullAdapter(64, ranks.engine().config()));
  executor::PeftCacheConfig config = cache();
  config.setHostCacheSize(prepared->bytes);
  EXPECT_EQ(adapterCapacity(config, ranks.engine(), 0).host.bytes, static_cast<int64_t>(prepared->bytes));
  config.setHostCacheSize(prepared->bytes - 1);
  EXPECT_EQ(errorOf([&] { adapterCapacity(config, ranks.engine(), 0); }),
            fmt::format("Not enough space allocated to host LoRA cache to hold 1 max sized LoRA {} < {}",
                        prepared->bytes - 1, prepared->bytes));
}

INSTANTIATE_TEST_SUITE_P(Engines, AdapterSizingTest,
                         ::testing::Values(Case{1, false}, Case{1, true}, Case{2, false}, Case{2, true},
                                           Case{1, true, executor::LoraStorage::kINT8},
                                           Case{2, false, executor::LoraStorage::kINT8}),
                         [](const auto& info) {
                           return fmt::format("tp{}{}{}", info.param.tp_size, info.param.dora ? "_dora" : "",
                                              info.param.storage == executor::LoraStorage::kINT8 ? "_int8" : "");
                         });

}  // namespace
}  // namespace chorus
