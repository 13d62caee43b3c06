// One file of tests/configs: settings under which every golden must answer as it does by default.
#pragma once

#include <string>
#include <vector>

#include "chorus/executor.h"
#include "engine/build_config.h"
#include "test_engines.h"

namespace chorus::test {

struct HostileConfig {
  std::string name;
  BuildConfig build;
  Cut cut;  // over ranks, all in this process
  executor::ExecutorConfig executor = executor::ExecutorConfig();
  bool repeat = false;              // every prompt twice together, then once more: blocks can be reused
  bool padded_input = false;        // through `chorus run` and a padded npy file
  bool one_adapter_cache = false;   // host cache that holds the largest adapter and no second one
  int32_t context_steps_over = 0;   // the run is void unless context phases took more steps than this
  bool recomputed = false;          // ... unless a pause had context tokens computed again
  int32_t reused_blocks_over = -1;  // ... unless more KV blocks than this were reused, where it is not negative
  bool adapters_apart = false;      // ... and void if one step held all of the golden's adapters
};

// The names of the files, without ".json".
std::vector<std::string> hostileConfigNames();
// Throws Error on an unknown key: a setting that nothing reads would test nothing.
HostileConfig loadHostileConfig(const std::string& name);

}  // namespace chorus::test
