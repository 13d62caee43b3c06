// Flags that several commands share: --backend and --isa of those that compute, --max_attention_window_size of run and
// serve, --lora_storage of serve, inspect and benchmarks.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace chorus {

// The variable CHORUS_ISA is used when --isa is not given. An empty isa means the best set that the machine has.
void addBackendFlags(CLI::App& command, std::string& backend, std::string& isa);
void addIsaFlag(CLI::App& command, std::string& isa);
// windows: KvCacheConfig::maxAttentionWindowVec; stays empty without the flag.
void addAttentionWindowFlag(CLI::App& command, std::vector<int32_t>& windows);
// storage: model or int8 (executor::LoraStorage); holds the default.
CLI::Option* addLoraStorageFlag(CLI::App& command, std::string& storage);

// Called when a command begins to work and not as a check of the flag, because commands that do not compute read the
// variable too. Throws an Error that lists the available sets when `isa` is not one of them. Returns the set in the
// form of the executor's configuration.
std::optional<std::string> checkedIsa(const std::string& isa);
std::optional<std::string> checkedIsa(const std::string& isa, const std::string& backend);

}  // namespace chorus
