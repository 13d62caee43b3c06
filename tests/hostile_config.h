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
  Cut cut;                               // over ranks, all in this process
  executor::ExecutorConfig executor;
  bool each_isa = false;                 // run once on every instruction set of this machine
  bool one_adapter_cache = false;        // host cache that holds the largest adapter and no second one
  int32_t context_steps_over = 0;        // the run is void unless context phases took more steps than this
  bool recomputed = false;               // ... unless a pause had context tokens computed again
  bool adapters_apart = false;           // ... and void if one step held all of the golden's adapters
};

// The names of the files, without ".json".
std::vector<std::string> hostileConfigNames();
// Throws Error on an unknown key: a setting that nothing reads would test nothing.
HostileConfig loadHostileConfig(const std::string& name);

}  // namespace chorus::test
