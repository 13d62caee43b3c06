#include "cli/inspect_kernels.h"

#include <fmt/format.h>

#include <cstdio>
#include <set>
#include <string>

#include "kernels/default_isa.h"
#include "kernels/registry.h"

namespace chorus {
namespace {

// The weight formats for which an op has separate variants; empty when every variant reads every format.
std::set<std::optional<DType>> formatsOf(Op op) {
  std::set<std::optional<DType>> formats;
  for (const Variant& variant : variantsOf(op)) {
    if (variant.isa) formats.insert(variant.dtype);
  }
  return formats;
}

void printRow(Op op, std::optional<DType> format) {
  const Variant chosen = defaultVariant(op, defaultIsa(), format.value_or(DType::kFloat32));
  std::string others;
  for (const Variant& variant : variantsOf(op)) {
    if (variant == chosen || (variant.dtype && variant.dtype != format)) continue;
    others += (others.empty() ? "" : ", ") + std::string(variantName(variant));
    if (!isAvailable(variant)) others += " (not on this machine)";
  }
  std::printf("%-17s %-9s %-13s %s\n", std::string(opName(op)).c_str(),
              format ? std::string(dtypeName(*format)).c_str() : "any", std::string(variantName(chosen)).c_str(),
              others.c_str());
}
}  // namespace

void printKernels() {
  const IsaChoice& choice = defaultIsaChoice();
  std::printf("Instruction sets of this machine: %s; default: %s, --isa chooses another\n", availableIsaNames().c_str(),
              std::string(isaName(choice.isa)).c_str());
  if (choice.dot_flops > 0) {
    const std::string tiles =
        choice.tile_flops > 0 ? fmt::format("bfloat16 tiles {:.0f} GFLOP/s, ", choice.tile_flops / 1e9) : "";
    std::printf("Probed on one thread: %sbfloat16 dot products %.0f GFLOP/s, float32 multiply-adds %.0f GFLOP/s\n",
                tiles.c_str(), choice.dot_flops / 1e9, choice.fma_flops / 1e9);
  }
  std::printf("\n");
  std::printf("%-17s %-9s %-13s %s\n", "op", "weights", "default", "others");
  for (const Op op : kOps) {
    for (const auto& format : formatsOf(op)) printRow(op, format);
  }
}

}  // namespace chorus
