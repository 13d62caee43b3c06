#include "cli/man_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/file.h"
#include "cli/commands.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using testing::HasSubstr;

std::string programsPage() {
  CLI::App app;
  addCommands(app);
  return manPage(flagReferenceOf(app));
}

TEST(ManPageTest, TheWrittenPageIsNotStale) {
  const std::string written = readFile(test::sourceDir().string() + "/docs/chorus.1", size_t{1} << 20);
  EXPECT_TRUE(written == programsPage()) << "docs/chorus.1 is not what the program's definitions say; write it again "
                                            "with\n  scripts/generated_pages.py";
}

TEST(ManPageTest, HasTheSectionsOfAManualAndEveryFlag) {
  const std::string text = programsPage();
  size_t place = 0;
  for (const char* title :
       {"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"}) {
    const size_t next = text.find(std::string(".SH ") + title + "\n", place);
    ASSERT_NE(next, std::string::npos) << title;
    place = next;
  }
  EXPECT_THAT(text, HasSubstr(".SS chorus bench serve\n"));
  EXPECT_THAT(text, HasSubstr("\\fB\\-\\-port\\fR \\fI0 to 65535\\fR\n"));
  EXPECT_THAT(text, HasSubstr("\\fB\\-i\\fR, \\fB\\-\\-in\\-file\\fR"));
  EXPECT_THAT(text, HasSubstr("\\fB\\-\\-gemm_plugin\\fR"));
  EXPECT_THAT(text, HasSubstr("\\fBXDG_CACHE_HOME\\fR\n"));
}

// One command with one flag whose texts are hostile to roff.
std::string pageOf(const std::string& text) {
  FlagReference reference;
  reference.commands.push_back(
      {.name = "chorus x", .description = text, .flags = {{.names = {"--x"}, .values = text, .description = text}}});
  return manPage(reference);
}

TEST(ManPageTest, TextIsNeverARequest) {
  const std::string words = R"(.so /etc/passwd 'br a\b "c" `d` e^f~g -h)";
  std::string many;
  for (int i = 0; i < 40; ++i) many += words + " ";
  std::istringstream lines(pageOf(many));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(line.starts_with(".so") || line.starts_with("'")) << line;
    // Quotes occur in the title alone.
    if (!line.starts_with(".TH") && !line.starts_with(".\\\"")) {
      EXPECT_EQ(line.find_first_of("\"`^~'"), std::string::npos) << line;
    }
  }
  EXPECT_THAT(pageOf(words),
              HasSubstr("\\&.so /etc/passwd \\(aqbr a\\eb \\(dqc\\(dq \\(gad\\(ga e\\(haf\\(tig \\-h.\n"));
}

TEST(ManPageTest, RowsSayWhetherAFlagIsRequiredItsDefaultAndVariables) {
  FlagReference reference;
  reference.commands.push_back(
      {.name = "chorus x",
       .description = "What",
       .flags = {{.names = {"-a", "--all"}, .values = "text", .required = true, .description = "All."},
                 {.names = {"--b"}, .preset = "1", .variables = {"B_1", "B_2"}, .description = "Bee"}}});
  EXPECT_THAT(manPage(reference),
              HasSubstr(".SS chorus x\nWhat.\n.TP\n\\fB\\-a\\fR, \\fB\\-\\-all\\fR \\fItext\\fR\nAll. Required.\n.TP\n"
                        "\\fB\\-\\-b\\fR\nBee. Default: \\fB1\\fR. Variable: \\fBB_1\\fR, \\fBB_2\\fR.\n"));
}

}  // namespace
}  // namespace chorus
