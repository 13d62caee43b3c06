#include "kernels/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

// Names like "RmsNorm/avx2" of all test instances in this program that CHORUS_FOR_EVERY_VARIANT made.
std::set<std::string> testedInstances() {
  std::set<std::string> instances;
  const testing::UnitTest& program = *testing::UnitTest::GetInstance();
  for (int s = 0; s < program.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *program.GetTestSuite(s);
    const std::string suite_name = suite.name();
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string test = suite.GetTestInfo(t)->name();
      if (suite_name.find('/') == std::string::npos || test.find('/') == std::string::npos) continue;
      instances.insert(suite_name.substr(0, suite_name.find('/')) + test.substr(test.rfind('/')));
    }
  }
  return instances;
}

std::string prefixOf(Op op) {
  switch (op) {
#define CHORUS_OP(Name, function, name) \
  case Op::k##Name:                     \
    return #Name;
    CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP
  }
  return "";
}

TEST(RegistryTest, EveryVariantOfThisMachineIsTested) {
  const auto instances = testedInstances();
  for (const Op op : kOps) {
    for (const Variant& variant : kernel_test::availableVariants(op)) {
      const std::string wanted = prefixOf(op) + "/" + kernel_test::testName(variant);
      EXPECT_TRUE(instances.count(wanted)) << variantText(variant) << ": no test instance " << wanted
                                           << "; see CHORUS_FOR_EVERY_VARIANT in kernels/test_util.h";
    }
  }
}

TEST(RegistryTest, EveryVariantHasABenchmarkRow) {
  for (const Op op : kOps) {
    const auto cases = benchCasesOf(op);
    for (const Variant& variant : variantsOf(op)) {
      const auto fits = [&](const BenchCase& c) {
        return (variant.isa || c.small) && (!variant.dtype || variant.dtype == c.dtype);
      };
      EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), fits)) << variantText(variant);
    }
  }
}

TEST(RegistryTest, VariantsAreListedOnceTheReferenceFirstAndTheScalarOneEverywhere) {
  for (const Op op : kOps) {
    const auto variants = variantsOf(op);
    EXPECT_EQ(std::set<Variant>(variants.begin(), variants.end()).size(), variants.size());
    EXPECT_FALSE(variants.front().isa);
    EXPECT_TRUE(std::any_of(variants.begin(), variants.end(), [](const Variant& v) { return v.isa == Isa::kScalar; }));
  }
}

// Only the op `linear` reads quantised weights; keys and values are never quantised.
bool cpuReads(Op op, DType dtype) {
  const auto variants = variantsOf(op);
  return std::any_of(variants.begin(), variants.end(),
                     [&](const Variant& v) { return v.isa && (!v.dtype || v.dtype == dtype); });
}

// defaultVariant() must be the variant that the backend runs.
TEST(RegistryTest, DefaultsAreWhatTheBackendTakes) {
  for (const Isa isa : availableIsas()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kInt4}) {
      for (const Op op : kOps) {
        if (!cpuReads(op, dtype)) continue;
        const auto backend = createBackend({.name = "cpu", .threads = 1, .isa = isa});
        for (const BenchCase& c : benchCasesOf(op)) {
          if (!c.small || (defaultVariant(op, isa, dtype).dtype && c.dtype != dtype)) continue;
          c.prepare(*backend, 1)();
        }
        EXPECT_TRUE(backend->used().has(defaultVariant(op, isa, dtype))) << opName(op) << " " << isaName(isa);
        // The op moe runs the ops linear and gated_activation.
        EXPECT_EQ(backend->used().all().size(), op == Op::kMoe ? 3u : 1u) << opName(op) << " " << isaName(isa);
      }
    }
  }
}

TEST(RegistryTest, LaterSetsTakeTheBestThatTheyInclude) {
  EXPECT_EQ(defaultVariant(Op::kLinear, std::nullopt, DType::kFloat32).isa, std::nullopt);
  EXPECT_EQ(defaultVariant(Op::kLinear, Isa::kScalar, DType::kFloat32).isa, Isa::kScalar);
#if defined(__x86_64__)
  EXPECT_EQ(defaultVariant(Op::kRmsNorm, Isa::kAmx, DType::kBFloat16).isa, Isa::kAvx512);
  EXPECT_EQ(defaultVariant(Op::kRmsNorm, Isa::kAvx2, DType::kBFloat16).isa, Isa::kAvx2);
#endif
}

}  // namespace
}  // namespace chorus
