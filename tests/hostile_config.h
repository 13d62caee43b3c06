// Reads a file of tests/configs: settings under which every golden must answer as with default settings.
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
  Cut cut;  // all ranks are in this process
  executor::ExecutorConfig executor = executor::ExecutorConfig();
  bool repeat = false;              // all prompts twice in one batch, then once more, so that blocks can be reused
  bool padded_input = false;        // by `chorus run` with a padded npy file
  bool one_adapter_cache = false;   // the host cache holds the largest adapter and no second one
  int32_t context_steps_over = 0;   // the test fails unless context phases took more steps than this
  bool recomputed = false;          // ... unless context tokens were recomputed after a pause
  int32_t reused_blocks_over = -1;  // ... unless more KV blocks than this were reused; negative: no such check
  bool adapters_apart = false;      // ... if one step held all of the golden's adapters
};

// The names of the files, without ".json".
std::vector<std::string> hostileConfigNames();
// Throws Error on an unknown key, because a setting that nothing reads would test nothing.
HostileConfig loadHostileConfig(const std::string& name);

}  // namespace chorus::test
