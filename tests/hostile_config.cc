#include "hostile_config.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {
using executor::CapacitySchedulerPolicy;
using Setter = std::function<void(const Json& value)>;

std::filesystem::path configs() { return test::sourceDir() / "tests/configs"; }

void apply(const Json& object, const std::string& where, const std::map<std::string, Setter>& setters) {
  for (const auto& [key, value] : object.items()) {
    const auto setter = setters.find(key);
    if (setter == setters.end()) fail(ErrorCode::kInvalidArgument, "{}: unknown key {}", where, key);
    setter->second(value);
  }
}

CapacitySchedulerPolicy policyFromName(const std::string& name) {
  if (name == "MAX_UTILIZATION") return CapacitySchedulerPolicy::kMAX_UTILIZATION;
  if (name == "GUARANTEED_NO_EVICT") return CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT;
  if (name == "STATIC_BATCH") return CapacitySchedulerPolicy::kSTATIC_BATCH;
  fail(ErrorCode::kInvalidArgument, "unknown policy {}", name);
}
}  // namespace

std::vector<std::string> hostileConfigNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(configs())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

HostileConfig loadHostileConfig(const std::string& name) {
  HostileConfig config{.name = name, .build = testBuildConfig()};
  BuildConfig& build = config.build;
  executor::ExecutorConfig& run = config.executor;
  // The default is the machine's number of cores. Several threads are used only where the file says so: tests run
  // beside each other, and threads that wait for work take the cores from them.
  run.setNumThreads(1);
  const std::string where = name + ".json";
  apply(readJsonFile(configs() / where), where,
        {{"why", [](const Json&) {}},
         {"build",
          [&](const Json& object) {
            apply(object, where,
                  {{"max_batch_size", [&](const Json& v) { v.get_to(build.max_batch_size); }},
                   {"max_num_tokens", [&](const Json& v) { v.get_to(build.max_num_tokens); }},
                   {"max_seq_len", [&](const Json& v) { v.get_to(build.max_seq_len); }},
                   {"pp_size", [&](const Json& v) { v.get_to(config.cut.pp_size); }},
                   {"tokens_per_block", [&](const Json& v) { v.get_to(build.tokens_per_block); }},
                   {"tp_size", [&](const Json& v) { v.get_to(config.cut.tp_size); }}});
          }},
         {"executor",
          [&](const Json& object) {
            apply(
                object, where,
                {{"backend", [&](const Json& v) { run.setBackend(v.get<std::string>()); }},
                 {"block_reuse", [&](const Json& v) { run.getKvCacheConfigRef().setEnableBlockReuse(v.get<bool>()); }},
                 {"chunked_context", [&](const Json& v) { run.setEnableChunkedContext(v.get<bool>()); }},
                 {"kv_tokens", [&](const Json& v) { run.getKvCacheConfigRef().setMaxTokens(v.get<int32_t>()); }},
                 {"one_adapter_cache", [&](const Json& v) { v.get_to(config.one_adapter_cache); }},
                 {"padded_input", [&](const Json& v) { v.get_to(config.padded_input); }},
                 {"policy",
                  [&](const Json& v) {
                    run.setSchedulerConfig(executor::SchedulerConfig(policyFromName(v.get<std::string>())));
                  }},
                 {"repeat", [&](const Json& v) { v.get_to(config.repeat); }},
                 {"threads", [&](const Json& v) { run.setNumThreads(v.get<int>()); }}});
          }},
         {"expect", [&](const Json& object) {
            apply(object, where,
                  {{"adapters_apart", [&](const Json& v) { v.get_to(config.adapters_apart); }},
                   {"context_steps_over", [&](const Json& v) { v.get_to(config.context_steps_over); }},
                   {"recomputed", [&](const Json& v) { v.get_to(config.recomputed); }},
                   {"reused_blocks_over", [&](const Json& v) { v.get_to(config.reused_blocks_over); }}});
          }}});
  return config;
}

}  // namespace chorus::test
