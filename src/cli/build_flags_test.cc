#include "cli/build_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace chorus {
namespace {

const ForeignFlag& flagNamed(std::string_view name) {
  return *std::find_if(buildFlags().begin(), buildFlags().end(), [&](const ForeignFlag& f) { return f.name == name; });
}

TEST(BuildFlagsTest, NamesAreUniqueAndInTheTable) {
  std::set<std::string_view> names;
  const std::string table = foreignFlagTable("Further flags", "recorded", buildFlags());
  for (const ForeignFlag& flag : buildFlags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_NE(table.find(flag.name), std::string::npos);
    if (flag.fate == FlagFate::kRefused) {
      EXPECT_FALSE(flag.note.empty()) << flag.name;
    }
  }
}

TEST(BuildFlagsTest, ChecksValues) {
  EXPECT_NO_THROW(checkForeignFlag(flagNamed("gemm_plugin"), "float16"));
  EXPECT_THROW(checkForeignFlag(flagNamed("gemm_plugin"), "float8"), Error);
  EXPECT_NO_THROW(checkForeignFlag(flagNamed("opt_num_tokens"), "128"));
  EXPECT_THROW(checkForeignFlag(flagNamed("opt_num_tokens"), "12x"), Error);
  EXPECT_THROW(checkForeignFlag(flagNamed("remove_input_padding"), "disable"), Error);
  EXPECT_NO_THROW(checkForeignFlag(flagNamed("max_draft_len"), "0"));
  EXPECT_THROW(checkForeignFlag(flagNamed("max_draft_len"), "4"), Error);
  EXPECT_THROW(checkForeignFlag(flagNamed("weight_streaming"), "true"), Error);
}

TEST(BuildFlagsTest, SomeValuesAreRecordedAndHaveNoEffectYet) {
  EXPECT_TRUE(isPending(flagNamed("context_fmha"), "disable"));
  EXPECT_FALSE(isPending(flagNamed("context_fmha"), "enable"));
  EXPECT_TRUE(isPending(flagNamed("disable_xqa"), "true"));
  EXPECT_TRUE(isPending(flagNamed("multi_block_mode"), "enable"));
  EXPECT_FALSE(isPending(flagNamed("gemm_plugin"), "float16"));
}

}  // namespace
}  // namespace chorus
