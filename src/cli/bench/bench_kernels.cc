#include "cli/bench/bench_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/backend_flags.h"
#include "cli/flag_values.h"
#include "kernels/registry.h"
#include "kernels/roofline.h"

namespace chorus {
namespace {

struct BenchKernelsArgs {
  std::string isa, filter, json;
  int threads = 0, cold_mib = 512, roof_mib = 2048;
  double min_time = 0.2;
  bool small = false;
  int threadCount() const { return threads > 0 ? threads : availableCores(); }
};

struct Measurement {
  Variant variant;
  std::string shape;
  std::optional<DType> dtype;
  double seconds, bytes, flops;
  double products_before, products_after;  // Roofs::productsNow around the measurement
};

// Upper bounds of what the op's variants can reach. Each `look` keeps the larger value.
class Roofs {
 public:
  explicit Roofs(const BenchKernelsArgs& args) : args_(args) {}
  // Uses its own thread pool so that the backend's threads sleep meanwhile.
  void look(const std::vector<Variant>& variants) {
    ThreadPool pool(args_.threadCount());
    read_ = std::max(read_, measureReadBandwidth(pool, static_cast<size_t>(args_.roof_mib) << 20));
    std::set<Isa> isas;  // a set: variants of several weight formats share one isa
    for (const Variant& variant : variants) isas.insert(variant.isa.value_or(Isa::kScalar));
    for (const Isa isa : isas) peaks_[isa] = std::max(peaks_[isa], measureMatmulPeak(pool, isa));
  }
  // The products of a moment, in a few milliseconds. Processors slow their tile registers down for seconds, so a row is
  // compared with the products before and after it.
  double productsNow(const Variant& variant) const {
    constexpr int64_t kRounds = int64_t{1} << 14;
    ThreadPool pool(args_.threadCount());
    return measureMatmulPeak(pool, variant.isa.value_or(Isa::kScalar), kRounds);
  }
  double read() const { return read_; }
  const std::map<Isa, double>& peaks() const { return peaks_; }

 private:
  const BenchKernelsArgs& args_;
  double read_ = 0;
  std::map<Isa, double> peaks_;
};

std::string textOf(const Variant& variant, const BenchCase& c) {
  const std::string dtype = c.dtype ? std::string(dtypeName(*c.dtype)) : "any";
  return fmt::format("{} {} {} {}", opName(variant.op), variantName(variant), dtype, c.shape);
}

// The requested cases of a variant.
std::vector<BenchCase> casesOf(const Variant& variant, const BenchKernelsArgs& args) {
  std::vector<BenchCase> cases;
  if (!isAvailable(variant)) return cases;
  for (BenchCase& c : benchCasesOf(variant.op)) {
    if (variant.dtype && variant.dtype != c.dtype) continue;
    if (!c.small && (args.small || !variant.isa)) continue;
    if (!args.isa.empty() &&
        variant != defaultVariant(variant.op, requireIsa(args.isa), c.dtype.value_or(DType::kFloat32))) {
      continue;
    }
    if (textOf(variant, c).find(args.filter) != std::string::npos) cases.push_back(std::move(c));
  }
  return cases;
}

Measurement measure(const Variant& variant, const BenchCase& c, const BenchKernelsArgs& args, const Roofs& roofs) {
  const auto backend =
      createBackend({.name = variant.isa ? "cpu" : "reference", .threads = args.threadCount(), .isa = variant.isa});
  const BenchOptions options{.min_seconds = args.min_time, .cold_bytes = static_cast<size_t>(args.cold_mib) << 20};
  const BenchCall call = c.prepare(*backend, options.cold_bytes);
  const double before = roofs.productsNow(variant);
  const double seconds = measureCall(call, options);
  const double after = roofs.productsNow(variant);
  if (!backend->used().has(variant)) fail(ErrorCode::kInternal, "{} did not run", variantText(variant));
  return {variant, c.shape, c.dtype, seconds, c.bytes, c.flops, before, after};
}

Json report(const Measurement& m, const Roofs& roofs) {
  // The op is bound by the roof of which it reaches the larger share.
  const double read_share = m.bytes / m.seconds / roofs.read();
  const double peak_share = m.flops / m.seconds / std::max(m.products_before, m.products_after);
  const bool of_read = read_share >= peak_share;
  const double peak_moved = std::abs(m.products_before - m.products_after);
  const bool moved = !of_read && peak_moved >= 0.1 * std::max(m.products_before, m.products_after);
  const std::string dtype = m.dtype ? std::string(dtypeName(*m.dtype)) : "any";
  std::printf("%-17s %-10s %-9s %-52s %12.2f %9.2f %9.2f %6.1f%% %s%s\n", std::string(opName(m.variant.op)).c_str(),
              std::string(variantName(m.variant)).c_str(), dtype.c_str(), m.shape.c_str(), m.seconds * 1e6,
              m.bytes / m.seconds / 1e9, m.flops / m.seconds / 1e9, 100 * std::max(read_share, peak_share),
              of_read ? "read" : "products", moved ? ", which moved" : "");
  return {{"op", opName(m.variant.op)},
          {"variant", variantName(m.variant)},
          {"dtype", dtype},
          {"shape", m.shape},
          {"median_s", m.seconds},
          {"gb_per_s", m.bytes / m.seconds / 1e9},
          {"gflop_per_s", m.flops / m.seconds / 1e9},
          {"share_of_read_roof", read_share},
          {"share_of_products_roof", peak_share},
          {"products_gflop_per_s", {m.products_before / 1e9, m.products_after / 1e9}}};
}

void runBenchKernels(const BenchKernelsArgs& args) {
  initLogging("warning");
  checkedIsa(args.isa);
  std::printf("%-17s %-10s %-9s %-52s %12s %9s %9s %7s %s\n", "op", "variant", "weights", "shape", "median us", "GB/s",
              "GFLOP/s", "share", "of");
  Roofs roofs(args);
  Json rows = Json::array();
  for (const Op op : kOps) {
    std::vector<std::pair<Variant, BenchCase>> work;
    std::vector<Variant> variants;
    for (const Variant& variant : variantsOf(op)) {
      for (BenchCase& c : casesOf(variant, args)) work.emplace_back(variant, std::move(c));
      if (!work.empty() && work.back().first == variant) variants.push_back(variant);
    }
    if (work.empty()) continue;
    roofs.look(variants);
    std::vector<Measurement> measured;
    for (const auto& [variant, c] : work) measured.push_back(measure(variant, c, args, roofs));
    roofs.look(variants);
    for (const Measurement& m : measured) rows.push_back(report(m, roofs));
    std::fflush(stdout);
  }
  if (rows.empty()) fail(ErrorCode::kInvalidArgument, "--filter {}: no row has this text", args.filter);
  Json peaks = Json::object();
  std::string text = fmt::format("roof: read {:.1f} GB/s", roofs.read() / 1e9);
  for (const auto& [isa, flops] : roofs.peaks()) {
    peaks[std::string(isaName(isa))] = flops / 1e9;
    text += fmt::format(", {} products {:.1f} GFLOP/s", isaName(isa), flops / 1e9);
  }
  std::printf("%s, %d threads\n", text.c_str(), args.threadCount());
  if (args.json.empty()) return;
  const Json document = {{"threads", args.threadCount()},
                         {"roof", {{"read_gb_per_s", roofs.read() / 1e9}, {"products_gflop_per_s", peaks}}},
                         {"rows", rows}};
  writeFileAtomically(args.json, document.dump(1) + "\n");
}
}  // namespace

void addBenchKernels(CLI::App& bench) {
  auto args = std::make_shared<BenchKernelsArgs>();
  CLI::App* kernels = bench.add_subcommand("kernels", "Every variant of every op: time, bytes and operations a second");
  addIsaFlag(*kernels, args->isa);
  kernels->add_option("--threads", args->threads, "0: all cores")->capture_default_str()->check(inRange(0, 1024));
  kernels->add_option("--filter", args->filter, "Only rows with this text, e.g. \"linear avx2 bfloat16\"");
  kernels->add_flag("--small", args->small, "Only the smallest shape of each op");
  kernels->add_option("--min_time", args->min_time, "Seconds of each row")
      ->capture_default_str()
      ->check(inRange(0.0, 3600.0));
  kernels->add_option("--cold_mib", args->cold_mib, "Memory over which a row's weights or cache are spread")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  kernels->add_option("--roof_mib", args->roof_mib, "Memory that the read roof is measured on")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  kernels->add_option("--json", args->json, "Write the figures here");
  kernels->callback([args] { runBenchKernels(*args); });
}

}  // namespace chorus
