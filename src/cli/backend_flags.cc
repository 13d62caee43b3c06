#include "cli/backend_flags.h"

#include <limits>

#include "base/cpu_features.h"
#include "cli/flag_values.h"
#include "kernels/backend.h"

namespace chorus {

void addIsaFlag(CLI::App& command, std::string& isa) {
  command
      .add_option("--isa", isa,
                  "Instruction set that this machine has: scalar, avx2, avx512, avx512_vnni, avx512_bf16, amx_int8, "
                  "amx, neon, neon_dot; "
                  "default: the fastest. All but avx512_bf16 and amx give the same logits, bit for bit")
      ->envname("CHORUS_ISA");
}

void addBackendFlags(CLI::App& command, std::string& backend, std::string& isa) {
  command
      .add_option("--backend", backend,
                  "cpu; for comparison: reference (plain loops), guarded (memory that the host cannot access)")
      ->capture_default_str();
  addIsaFlag(command, isa);
}

void addAttentionWindowFlag(CLI::App& command, std::vector<int32_t>& windows) {
  command
      .add_option(
          "--max_attention_window_size", windows,
          "Attention window in tokens, with the token itself; narrows the model's own windows. Several values, "
          "separated by commas, go to the layers in turn and repeat. Layers with a window need KV cache for its "
          "tokens only. Default: the model's windows")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(inRange(1, std::numeric_limits<int32_t>::max()));
}

CLI::Option* addLoraStorageFlag(CLI::App& command, std::string& storage) {
  return command
      .add_option("--lora_storage", storage,
                  "How A and B of adapters are kept in memory; model: in the model's type; int8: as 8-bit integers "
                  "with a scale for each row of A and of B, in little more than half the memory of a 16-bit type")
      ->check(oneOf({"model", "int8"}))
      ->capture_default_str();
}

std::optional<std::string> checkedIsa(const std::string& isa) {
  if (isa.empty()) return std::nullopt;
  requireIsa(isa);
  return isa;
}

std::optional<std::string> checkedIsa(const std::string& isa, const std::string& backend) {
  requireBackendName(backend);
  return checkedIsa(isa);
}

}  // namespace chorus
