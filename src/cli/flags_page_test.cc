#include "cli/flags_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/commands.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using testing::HasSubstr;

std::string page() {
  CLI::App app;
  addCommands(app);
  return flagsPage(flagReferenceOf(app));
}

TEST(FlagsPageTest, AllVariablesAndFlagsAreInOneGeneratedTableThatIsNotStale) {
  const std::string written = readFile(test::sourceDir().string() + "/docs/flags.md", size_t{1} << 20);
  EXPECT_TRUE(written == page()) << "docs/flags.md is not what the program's definitions say; write it again with\n"
                                    "  scripts/generated_pages.py";
}

TEST(FlagsPageTest, SaysNamesValuesDefaultVariableAndPurpose) {
  const std::string text = page();
  EXPECT_THAT(text, HasSubstr("| `--port` | 0 to 65535 | `8000` | `NIM_SERVER_PORT`, `NIM_HTTP_API_PORT`, "
                              "`CHORUS_PORT` | Port to listen on"));
  EXPECT_THAT(text, HasSubstr("| `NIM_PEFT_SOURCE`, `CHORUS_LORA_DIR` | chorus serve | `--lora_dir` |"));
  EXPECT_THAT(text, HasSubstr("| `-i`, `--in-file` | text | required |"));
  EXPECT_THAT(text, HasSubstr("## chorus bench serve\n"));
  EXPECT_THAT(text, HasSubstr("| `--gemm_plugin` |")) << "flags that build takes by a table";
  EXPECT_THAT(text, HasSubstr("| `XDG_CACHE_HOME` | chorus serve |"));
}

}  // namespace
}  // namespace chorus
