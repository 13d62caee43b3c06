// Draws an adapter_config.json from a fuzzer's bytes: names, patterns and lists in every field that accepts them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "fuzz/drawn_pattern.h"

namespace chorus::test {

inline Json drawnAdapterConfig(Drawn& drawn) {
  static const std::vector<std::string> kNames = {"q_proj",
                                                  "k_proj",
                                                  "layers",
                                                  "model.layers.0.self_attn.q_proj",
                                                  "self_attn",
                                                  "lm_head",
                                                  "embed_tokens",
                                                  "layers.1.mlp",
                                                  "model.layers.*",
                                                  "a",
                                                  "",
                                                  "\\w*\\w*\\w*\\w*\\w*!",
                                                  "(.*)*.*proj",
                                                  "(?=(\\w*\\w*)*!)q_proj",
                                                  "layers\\.(0|1)\\..*",
                                                  "(?P<n>q|k)_proj",
                                                  "all-linear",
                                                  "q.proj"};
  const auto name = [&] { return drawn.below(4) == 3 ? drawnPattern(drawn) : drawn.oneOf(kNames); };
  const auto list = [&] {
    Json names = Json::array();
    for (size_t n = drawn.below(6); n > 0; --n) names.push_back(name());
    return names;
  };
  const auto names = [&] { return drawn.chance() ? Json(name()) : list(); };
  Json config = {{"peft_type", "LORA"}, {"r", drawn.below(16)}};
  for (const char* field : {"rank_pattern", "alpha_pattern"}) {
    if (!drawn.chance()) continue;
    Json patterns = Json::object();
    for (size_t n = drawn.below(24); n > 0; --n) patterns[name()] = 1 + drawn.below(64);
    config[field] = std::move(patterns);
  }
  if (drawn.chance()) config["target_modules"] = names();
  if (drawn.chance()) config["exclude_modules"] = names();
  if (drawn.chance()) config["modules_to_save"] = list();
  if (drawn.chance()) config["target_parameters"] = list();
  if (drawn.chance()) config["layers_to_transform"] = drawn.below(3);
  if (drawn.chance()) config["layers_pattern"] = names();
  if (drawn.chance()) config["use_rslora"] = true;
  if (drawn.chance()) config["init_lora_weights"] = name();
  return config;
}

}  // namespace chorus::test
