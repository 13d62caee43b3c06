#include "base/amx.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>

#include "base/cpu_features.h"
#include "base/log.h"

namespace chorus {
namespace {

TEST(AmxTest, TilesTheirProductsAndBothPartsOfTheirStateMustBeThere) {
  constexpr uint32_t kBits = 1u << 22 | 1u << 24 | 1u << 25;
  constexpr uint64_t kState = 3u << 17 | 7;
  EXPECT_TRUE(amxReported(kBits, kState));
  EXPECT_TRUE(amxReported(~0u, ~uint64_t{0}));
  for (const uint32_t bit : {1u << 22, 1u << 24, 1u << 25}) EXPECT_FALSE(amxReported(~0u & ~bit, ~uint64_t{0}));
  for (const uint64_t bit : {1u << 17, 1u << 18}) EXPECT_FALSE(amxReported(~0u, ~bit));
}

// A second request gets the same answer from the kernel. If the kernel refuses AMX, a warning is logged and
// availableIsas() does not list it.
TEST(AmxTest, ARefusalIsLoggedAndTheSetNotListed) {
  const auto& isas = availableIsas();
  const bool listed = std::find(isas.begin(), isas.end(), Isa::kAmx) != isas.end();
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines)));
  const bool permitted = requestAmx();
  spdlog::set_default_logger(before);
  EXPECT_TRUE(permitted || !listed);
  EXPECT_EQ(listed, amxAvailable());
#if defined(__x86_64__)
  EXPECT_EQ(lines.str().find("the kernel refuses AMX") == std::string::npos, permitted) << lines.str();
#endif
}

}  // namespace
}  // namespace chorus
