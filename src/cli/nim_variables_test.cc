#include "cli/nim_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/variable_names.h"

namespace chorus {
namespace {

using testing::HasSubstr;
using testing::Not;

// Returns what checkNimVariables() logs, or the text of its error if it throws one.
std::string checked(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  initLogging("info");
  testing::internal::CaptureStderr();
  try {
    checkNimVariables(environment.data());
  } catch (const Error& error) {
    testing::internal::GetCapturedStderr();
    return error.what();
  }
  return testing::internal::GetCapturedStderr();
}

class NimVariablesTest : public testing::Test {
 protected:
  NimVariablesTest() {
    addCommands(app);
    serve = app.get_subcommand("serve");
  }
  ~NimVariablesTest() override {
    for (const char* name : {"NIM_SERVER_PORT", "NIM_HTTP_API_PORT", "CHORUS_PORT", "NIM_SSL_MODE",
                             "NIM_SSL_CERTS_PATH", "NIM_SSL_KEY_PATH", "NIM_SSL_CA_CERTS_PATH"}) {
      unsetenv(name);
    }
  }

  CLI::App app;
  CLI::App* serve;
};

TEST_F(NimVariablesTest, EachRowIsComplete) {
  std::set<std::string_view> names;
  for (const NimVariable& variable : nimVariables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_TRUE(variable.name.starts_with("NIM_")) << variable.name;
    if (variable.fate != NimFate::kFlag) {
      EXPECT_FALSE(variable.note.empty()) << variable.name;
      continue;
    }
    const CLI::Option* option = serve->get_option_no_throw("--" + std::string(variable.flag));
    ASSERT_NE(option, nullptr) << variable.name;
    EXPECT_THAT(variablesOf(*option), testing::Contains(variable.name)) << "is not the flag's first name";
  }
  for (const char* name : {"NIM_PEFT_SOURCE", "NIM_PEFT_REFRESH_INTERVAL", "NIM_MAX_GPU_LORAS", "NIM_MAX_CPU_LORAS",
                           "NIM_MAX_LORA_RANK", "NIM_CACHE_PATH"}) {
    EXPECT_TRUE(names.contains(name)) << "NIM's page about adapters names it";
  }
}

TEST_F(NimVariablesTest, ARefusedVariableIsAnErrorUnlessItAsksForNothing) {
  EXPECT_THAT(checked({"NIM_TENSOR_PARALLEL_SIZE=2"}), HasSubstr("NIM_TENSOR_PARALLEL_SIZE: a server is one process"));
  EXPECT_EQ(checked({"NIM_TENSOR_PARALLEL_SIZE=1", "NIM_ENABLE_OTEL=False", "NIM_REWARD_MODEL=", "PATH=x"}), "");
  for (const NimVariable& variable : nimVariables()) {
    const std::string entry = std::string(variable.name) + "=anything";
    const std::string text = checked({entry.c_str()});
    if (variable.fate == NimFate::kFlag && variable.modes.empty()) {
      EXPECT_EQ(text, "");
    } else {
      const bool is_idle = variable.fate == NimFate::kNoEffect || variable.fate == NimFate::kFlag;
      EXPECT_THAT(text, HasSubstr(variable.name));
      EXPECT_THAT(text, HasSubstr(variable.note));
      EXPECT_EQ(text.find("no effect") != std::string::npos, is_idle) << text;
    }
  }
}

TEST_F(NimVariablesTest, TheModeOfTlsSaysWhichFilesCount) {
  const auto chosen = [&](const char* mode) {
    setenv("NIM_SSL_MODE", mode, 1);
    for (const char* name : {"NIM_SSL_CERTS_PATH", "NIM_SSL_KEY_PATH", "NIM_SSL_CA_CERTS_PATH"}) setenv(name, "/x", 1);
    chooseVariables(*serve, {});
    std::string names;
    for (const char* flag : {"--tls_cert_file", "--tls_key_file", "--tls_client_ca_file"}) {
      names += serve->get_option(flag)->get_envname() + " ";
    }
    return names;
  };
  EXPECT_EQ(chosen("MTLS"), "NIM_SSL_CERTS_PATH NIM_SSL_KEY_PATH NIM_SSL_CA_CERTS_PATH ");
  EXPECT_EQ(chosen("tls"), "NIM_SSL_CERTS_PATH NIM_SSL_KEY_PATH CHORUS_TLS_CLIENT_CA_FILE ");
  const std::string none = "CHORUS_TLS_CERT_FILE CHORUS_TLS_KEY_FILE CHORUS_TLS_CLIENT_CA_FILE ";
  EXPECT_EQ(chosen("DISABLED"), none);
  EXPECT_EQ(chosen(""), none);
  EXPECT_THAT(checked({"NIM_SSL_KEY_PATH=/x"}), HasSubstr("NIM_SSL_KEY_PATH: no effect; it counts if NIM_SSL_MODE"));
  EXPECT_THAT(checked({"NIM_SSL_MODE=SSL"}), HasSubstr("NIM_SSL_MODE SSL: use DISABLED, TLS or MTLS"));
}

TEST_F(NimVariablesTest, AnUnknownVariableGetsAWarningWithTheNearestName) {
  const std::string text = checked({"NIM_MAX_GPU_LORA=4", "NIM_ZZZZZZZZZZZZZZZZZZZZZZZZ=1", "NIM=1", "NIMBLE=1"});
  EXPECT_THAT(text, HasSubstr("NIM_MAX_GPU_LORA: unknown variable, it has no effect; did you mean NIM_MAX_GPU_LORAS?"));
  EXPECT_THAT(text, HasSubstr("NIM_ZZZZZZZZZZZZZZZZZZZZZZZZ: unknown variable, it has no effect\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

TEST_F(NimVariablesTest, NamesOfUnknownVariablesAreForeignBytes) {
  const std::string longest = "NIM_" + std::string(100000, 'x') + "=1";
  const std::string text = checked({"NIM_\x1b[2J\n=1", longest.c_str()});
  EXPECT_THAT(text, HasSubstr("NIM_\\x1b[2J\\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[2J")));
  EXPECT_LT(text.size(), 1000u);
}

TEST_F(NimVariablesTest, AnyVariableOfAFlagIsRead) {
  const CLI::Option* port = serve->get_option("--port");
  EXPECT_EQ(variablesOf(*port), (std::vector<std::string>{"NIM_SERVER_PORT", "NIM_HTTP_API_PORT", "CHORUS_PORT"}));
  setenv("CHORUS_PORT", "9001", 1);
  chooseVariables(*serve, {});
  EXPECT_EQ(port->get_envname(), "CHORUS_PORT");
  EXPECT_EQ(variablesOf(*port).front(), "NIM_SERVER_PORT") << "the choice changes no page";
  setenv("NIM_HTTP_API_PORT", "9003", 1);
  chooseVariables(*serve, {});
  EXPECT_EQ(port->get_envname(), "NIM_HTTP_API_PORT") << "an image sets the variable with CHORUS_";
  setenv("NIM_SERVER_PORT", "9002", 1);
  try {
    chooseVariables(*serve, {});
    FAIL() << "two values of one flag";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("NIM_HTTP_API_PORT: NIM_SERVER_PORT is set too"));
  }
  const std::vector<const char*> words = {"serve", "--port", "1"};
  chooseVariables(*serve, words);
}

}  // namespace
}  // namespace chorus
