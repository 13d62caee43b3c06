// Any bytes as adapter_config.json are refused with an Error, or give a config that returns a rank for every module
// name in bounded time. Input that begins with a zero byte is choices, from which a configuration is drawn.
// parses: src/lora/adapter_config_forms.cc src/lora/peft_config.cc src/lora/module_choice.cc src/lora/peft_fields.cc
// src/lora/module_pattern.cc
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "fuzz/drawn_adapter_config.h"
#include "fuzz/fuzz_target.h"
#include "lora/peft_config.h"

// A configuration of any length may spend PatternWork::kAtFirst on its patterns, a drawn configuration has hundreds of
// bytes for each byte of choices, and a pattern with rare syntax checks its budget only after a few milliseconds.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 30'000, .bytes = 2 << 20};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  chorus::log::set_level(chorus::log::level::off);
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] == 0) {
    Drawn drawn(data + 1, size - 1);
    text = drawnAdapterConfig(drawn).dump();
  }
  try {
    const auto config = chorus::PeftConfig::parse(text, "fuzz");
    if (config.mlx && config.mlx->last_layers < 0) __builtin_trap();
    for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "lm_head", ""}) {
      config.modules.saves(module);
      if (!config.modules.includes(module) && !config.modules.includesParameter(module)) continue;
      if (config.rankOf(module) < 1) __builtin_trap();
      config.scaleOf(module);
    }
  } catch (const chorus::Error&) {
  }
}
