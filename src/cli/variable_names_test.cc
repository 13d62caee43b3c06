#include "cli/variable_names.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <vector>

namespace chorus {
namespace {

class VariableNamesTest : public ::testing::Test {
 protected:
  VariableNamesTest() {
    CLI::App* serve = app.add_subcommand("serve");
    serve->add_option("--port", port)->envname("CHORUS_TEST_PORT")->check(CLI::Range(0, 65535));
    serve->add_option("--port_range", other);
  }
  ~VariableNamesTest() override { unsetenv("CHORUS_TEST_PORT"); }

  // The error line of a command line.
  std::string errorOf(std::vector<const char*> args) {
    args.insert(args.begin(), {"chorus", "serve"});
    try {
      app.parse(static_cast<int>(args.size()), args.data());
      return "";
    } catch (const CLI::ParseError& e) {
      return withVariableNames(e.what(), app, args);
    }
  }

  CLI::App app;
  int port = 0, other = 0;
};

TEST_F(VariableNamesTest, ErrorsFromVariablesNameTheVariable) {
  for (const char* value : {"99999", "many"}) {
    setenv("CHORUS_TEST_PORT", value, 1);
    const std::string error = errorOf({});
    EXPECT_NE(error.find("CHORUS_TEST_PORT"), std::string::npos) << error;
    EXPECT_EQ(error.find("--port"), std::string::npos) << error;
  }
  const std::vector<const char*> args = {"chorus", "serve"};
  EXPECT_EQ(withVariableNames("cannot bind; choose another --host or --port, --port_range or x--port", app, args),
            "cannot bind; choose another --host or CHORUS_TEST_PORT, --port_range or x--port");
}

TEST_F(VariableNamesTest, AFlagThatWasGivenKeepsItsName) {
  setenv("CHORUS_TEST_PORT", "1", 1);
  for (const auto& args : {std::vector<const char*>{"--port", "99999"}, std::vector<const char*>{"--port=99999"}}) {
    const std::string error = errorOf(args);
    EXPECT_NE(error.find("--port"), std::string::npos) << error;
  }
  unsetenv("CHORUS_TEST_PORT");
  EXPECT_EQ(withVariableNames("--port", app, {}), "--port");
}

}  // namespace
}  // namespace chorus
