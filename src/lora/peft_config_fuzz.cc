// Any bytes as adapter_config.json: refused with an Error, or a config that ranks every module name in bounded time.
// parses: src/lora/peft_config.cc src/lora/module_choice.cc src/lora/peft_fields.cc src/lora/module_pattern.cc
// parses: src/text/tokenizer/regex.cc
#include <cstdint>

#include "base/error.h"
#include "base/log.h"
#include "lora/peft_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chorus::log::set_level(chorus::log::level::off);
  try {
    const auto config = chorus::PeftConfig::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "lm_head", ""}) {
      config.modules.saves(module);
      if (!config.modules.includes(module) && !config.modules.includesParameter(module)) continue;
      if (config.rankOf(module) < 1) __builtin_trap();
      config.scaleOf(module);
    }
  } catch (const chorus::Error&) {
  }
  return 0;
}
