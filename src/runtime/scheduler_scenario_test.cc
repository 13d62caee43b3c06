// Runs tests/scenarios/scheduler/*.txt; guaranteed_no_evict.txt describes the format.
#include <gtest/gtest.h>

#include "runtime/testing/scenario_file.h"
#include "runtime/testing/scheduler_simulation.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using executor::CapacitySchedulerPolicy;
using executor::ContextChunkingPolicy;
using testing::ScenarioLine;
using testing::SchedulerSimulation;

void configure(SchedulerSimulation& simulation, const ScenarioLine& line) {
  SchedulerLimits& limits = simulation.limits;
  static const std::map<std::string, CapacitySchedulerPolicy> kPolicies = {
      {"GUARANTEED_NO_EVICT", CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT},
      {"MAX_UTILIZATION", CapacitySchedulerPolicy::kMAX_UTILIZATION},
      {"STATIC_BATCH", CapacitySchedulerPolicy::kSTATIC_BATCH}};
  static const std::map<std::string, ContextChunkingPolicy> kChunking = {
      {"FIRST_COME_FIRST_SERVED", ContextChunkingPolicy::kFIRST_COME_FIRST_SERVED},
      {"EQUAL_PROGRESS", ContextChunkingPolicy::kEQUAL_PROGRESS}};
  for (const auto& [key, value] : line.values) {
    if (key == "policy")
      limits.policy = kPolicies.at(value);
    else if (key == "chunking")
      limits.chunking_policy = kChunking.at(value);
    else if (key == "chunked_context")
      limits.chunked_context = value == "on";
    else if (key == "max_batch_size")
      limits.max_batch_size = std::stoi(value);
    else if (key == "max_num_tokens")
      limits.max_num_tokens = std::stoi(value);
    else if (key == "tokens_per_block")
      limits.kv.tokens_per_block = std::stoi(value);
    else if (key == "kv_blocks")
      limits.kv_blocks = std::stoi(value);
    else if (key == "reuse")
      simulation.reuse = value == "on";
    else if (key == "adapter_budget")
      limits.adapter_budget = {std::stoi(value), AdapterSize::kUnlimited};
    else if (key == "max_bypasses")
      limits.max_bypasses = std::stoi(value);
    else if (key == "max_scored_rows")
      limits.max_scored_rows = std::stoi(value);
    else if (key == "turn_steps")
      limits.turn_steps = std::stoi(value);
    else
      throw std::runtime_error("unknown setting " + key);
  }
}

void arrive(SchedulerSimulation& simulation, const ScenarioLine& line) {
  for (const auto& name : line.words) {
    testing::SimulatedRequest request;
    request.name = name;
    request.prompt = line.numberOf("prompt", 1);
    request.new_tokens = line.numberOf("new", 1);
    request.stop_after = line.numberOf("stops_after", 0);
    request.position.priority = std::stof(line.value("priority", "0.5"));
    if (line.values.contains("client")) request.client = std::stoull(line.value("client", ""));
    std::istringstream adapters(line.value("adapter", ""));
    for (std::string id; std::getline(adapters, id, '+');)
      request.adapters.push_back({std::stoull(id), {line.numberOf("cost", 1), 0}});
    request.adapter_ready = line.value("loaded", "yes") == "yes";
    request.family = line.numberOf("family", 0);
    request.common = line.numberOf("common", 0);
    request.scores = line.numberOf("scores", 0) != 0;
    simulation.arrive(request);
  }
}

// Executes one line of a scenario. Returns "" if it holds, else what was observed.
std::string play(SchedulerSimulation& simulation, const ScenarioLine& line) {
  if (line.command == "config") {
    configure(simulation, line);
  } else if (line.command == "arrive") {
    arrive(simulation, line);
  } else if (line.command == "cancel") {
    for (const auto& name : line.words) {
      if (!simulation.cancel(name)) return "no such request";
    }
  } else if (line.command == "loaded") {
    for (const auto& id : line.words) simulation.setAdapterReady(std::stoull(id), true);
  } else if (line.command == "step") {
    const std::string plan = simulation.step();
    return plan == line.expected ? "" : plan;
  } else if (line.command == "blocks") {
    const auto held = std::to_string(simulation.blocksHeld());
    return held == line.expected ? "" : held;
  } else if (line.command == "cached") {
    const auto cached = std::to_string(simulation.blocksCached());
    return cached == line.expected ? "" : cached;
  } else {
    throw std::runtime_error("unknown command " + line.command);
  }
  return "";
}

TEST(SchedulerScenarios, Files) {
  const auto files = testing::scenarioFiles(test::sourceDir().string() + "/tests/scenarios/scheduler");
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    auto simulation = std::make_unique<SchedulerSimulation>();
    for (const auto& line : testing::readScenario(file)) {
      if (line.command == "scenario") {
        simulation = std::make_unique<SchedulerSimulation>();
        continue;
      }
      std::string seen;
      try {
        seen = play(*simulation, line);
      } catch (const std::exception& error) {
        seen = std::string("error: ") + error.what();
      }
      EXPECT_EQ(seen, "") << file.filename().string() << ":" << line.number << ": " << line.text;
    }
  }
}

}  // namespace
}  // namespace chorus
