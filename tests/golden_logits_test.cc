// Teacher-forced logits of every golden through the ranks of an engine, on each instruction set, on the reference
// backend and on the guarded backend. Also checks that a golden has run every kernel that is used by default.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/cpu_features.h"
#include "engine/rank_group.h"
#include "golden_case.h"
#include "golden_tolerance.h"
#include "kernels/default_isa.h"
#include "kernels/registry.h"
#include "teacher_forced.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

struct Where {
  std::string backend;
  std::optional<Isa> isa;
  std::string name() const { return isa ? backend + " " + std::string(isaName(*isa)) : backend; }
};

// nullopt: the reference backend.
std::optional<Isa> isaOf(const Where& where) {
  return where.backend == "reference" ? std::nullopt : std::optional(where.isa.value_or(defaultIsa()));
}

std::vector<Where> everywhere() {
  std::vector<Where> all = {{"reference", std::nullopt}, {"guarded", std::nullopt}};
  for (const Isa isa : availableIsas()) all.push_back({"cpu", isa});
  return all;
}

class GoldenLogits : public testing::TestWithParam<std::tuple<std::string, DType>> {};

struct GoldenRun {
  VariantRecord used;                      // the kernels
  std::vector<std::vector<float>> logits;  // of each of the golden's rows
};

// Compares every row with the oracle's.
GoldenRun compare(const GoldenCase& golden, const Where& where) {
  const DType dtype = golden.dtype;
  SCOPED_TRACE(golden.name + " " + where.name());
  const auto engines = RankGroup::loadEngines(testEngine(golden.directory, dtype));
  const Engine& engine = *engines.front();
  RankGroup ranks(engines, {.name = where.backend, .threads = 1, .isa = where.isa}, kTeacherForcedOptions);
  std::vector<std::shared_ptr<const PreparedAdapter>> adapters;
  for (size_t i = 0; i < golden.adapters.size(); ++i) {
    adapters.push_back(ranks.prepareAdapter(readTestAdapter(golden.adapterDirectory(i), engine)));
  }
  GoldenRun ran;
  double worst = 0;
  const DType inputs = linearInputType(isaOf(where), dtype);
  for (size_t i = 0; i < golden.rows.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const GoldenRow& row = golden.rows[i];
    const PreparedAdapter* adapter = row.adapter ? adapters[*row.adapter].get() : nullptr;
    const std::vector<float> logits = teacherForced(ranks, row.fed(), row.first_position, adapter);
    const double error = largestDifference(logits, row.logits);
    const double tolerance =
        goldenTolerance(dtype, inputs, engine.config(), static_cast<int64_t>(row.fed().size()), largestOf(row.logits));
    EXPECT_LE(error, tolerance);
    worst = std::max(worst, error / tolerance);
    EXPECT_EQ(teacherForced(ranks, row.fed(), row.first_position, adapter, 7), logits) << "in chunks of 7";
    ran.logits.push_back(logits);
  }
  std::printf("%s %s %s: largest error %.2f of the tolerance\n", golden.name.c_str(),
              std::string(dtypeName(dtype)).c_str(), where.name().c_str(), worst);
  for (int32_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Variant& variant : ranks.session(rank).backend().used().all()) ran.used.add(variant);
  }
  return ran;
}

TEST_P(GoldenLogits, AreTheOraclesAndTheSameOnPortableSets) {
  const auto& [name, dtype] = GetParam();
  const GoldenCase golden = loadGolden(name, dtype);
  std::vector<std::vector<float>> first;
  for (const Where& where : everywhere()) {
    const GoldenRun ran = compare(golden, where);
    if (where.backend != "cpu" || !isPortable(*where.isa, dtype)) continue;
    if (first.empty()) first = ran.logits;
    EXPECT_EQ(ran.logits, first) << where.name();
  }
}

// A new op or variant needs a golden that runs it, on this machine's instruction sets and on the reference backend.
// Compares goldens until every default variant has run.
TEST(GoldenKernels, EveryDefaultVariantRunsInAGolden) {
  std::vector<Where> places = everywhere();
  // The fastest place first: it finds the goldens that are needed, and the slower places then try these first.
  std::reverse(places.begin(), places.end());
  std::vector<std::string> names = goldenNames();
  for (const Where& where : places) {
    const auto isa = isaOf(where);
    for (const DType dtype : kGoldenDTypes) {
      std::vector<Variant> missing;
      for (const Op op : kOps) missing.push_back(defaultVariant(op, isa, dtype));
      for (auto name = names.begin(); name != names.end() && !missing.empty(); ++name) {
        const VariantRecord used = compare(loadGolden(*name, dtype), where).used;
        // A golden that ran a missing variant is tried first the next time.
        if (std::erase_if(missing, [&](const Variant& variant) { return used.has(variant); }) > 0) {
          std::rotate(names.begin(), name, name + 1);
        }
      }
      for (const Variant& variant : missing) {
        ADD_FAILURE() << variantText(variant) << " is the default of " << where.name() << " for " << dtypeName(dtype)
                      << " engines and ran in no golden";
      }
    }
  }
}

// For each quantised format, the default variant of the linear must run in a golden.
TEST(GoldenKernels, EveryQuantisedFormatRunsInAGolden) {
  for (const Where& where : everywhere()) {
    const auto isa =
        where.backend == "reference" ? std::nullopt : std::optional(where.isa.value_or(availableIsas().back()));
    for (const DType format : {DType::kInt8, DType::kInt4}) {
      const Variant wanted = defaultVariant(Op::kLinear, isa, format);
      bool ran = false;
      for (const std::string& name : goldenNames()) {
        const GoldenCase golden = loadGolden(name, DType::kBFloat16);
        const auto quantise = goldenQuantisation(golden.directory);
        if (ran || !quantise || (quantise->bits == 8) != (format == DType::kInt8)) continue;
        ran = compare(golden, where).used.has(wanted);
      }
      EXPECT_TRUE(ran) << variantText(wanted) << " is the default of " << where.name() << " and ran in no golden";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenLogits,
                         testing::Combine(testing::ValuesIn(goldenNames()), testing::ValuesIn(kGoldenDTypes)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::string(dtypeName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace chorus::test
