#include "cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/error_of.h"
#include "cli/effective_configuration.h"
#include "cli/flag_values.h"
#include "cli/variable_names.h"

namespace chorus {
namespace {

using testing::HasSubstr;

class ConfigFileTest : public ::testing::Test {
 protected:
  ConfigFileTest() {
    serve_->add_option("model_dir,--model", model_);
    serve_->add_option("--port", port_)->check(inRange(0, 65535))->capture_default_str();
    serve_->add_option("--share", share_)->check(inRange(0.0, 1.0));
    serve_->add_option("--lora_dir", dirs_)->allow_extra_args(false);
    serve_->add_option("--origins", origins_)->delimiter(',');
    serve_->add_option("--page", page_)->check(oneOf({"on", "off"}))->default_str("on");
    serve_->add_flag("--trust", trust_);
    markSecret(serve_->add_option("--api_key", key_));
    serve_->add_option("--config", path_);
    addVariableNames(*serve_, "CHORUS_TEST_CONF_");
    serve_->parse_complete_callback([this] {
      if (path_.empty()) return;
      file_ = ConfigFile(*serve_, path_);
      file_.setMissing(*serve_);
    });
  }
  ~ConfigFileTest() override {
    for (const char* name : {"PORT", "MODEL", "API_KEY", "CONFIG"})
      unsetenv((std::string("CHORUS_TEST_CONF_") + name).c_str());
    std::filesystem::remove(written_);
  }

  std::string written(const std::string& text) {
    std::ofstream(written_) << text;
    return written_;
  }

  // Parses a command line of serve.
  void parse(std::vector<std::string> words) {
    words.insert(words.begin(), {"chorus", "serve"});
    words_ = std::move(words);
    args_.clear();
    for (const std::string& word : words_) args_.push_back(word.c_str());
    app_.parse(static_cast<int>(args_.size()), args_.data());
  }

  // The error of a file with this text, with FILE in place of its path.
  std::string refusalOf(const std::string& text) {
    const std::string path = written(text);
    std::string line = errorOf([&] { parse({"--config", path}); });
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    if (const size_t at = line.find(path); at != std::string::npos) line.replace(at, path.size(), "FILE");
    return line;
  }

  std::string configuration() { return effectiveConfiguration(*serve_, file_, args_); }

  std::string written_ = testing::TempDir() + "config_file_test_" + std::to_string(getpid()) + ".yaml";
  CLI::App app_;
  CLI::App* serve_ = app_.add_subcommand("serve");
  std::string model_, path_, key_;
  int port_ = 8000;
  double share_ = 0.5;
  std::vector<std::string> dirs_, origins_;
  bool page_ = true, trust_ = false;
  ConfigFile file_;
  std::vector<std::string> words_;
  std::vector<const char*> args_;
};

TEST_F(ConfigFileTest, SetsFlagsOfEveryType) {
  parse({"--config", written("# a server\n"
                             "model: /srv/base\n"
                             "port: 9000\n"
                             "share: 0.25\n"
                             "lora-dir:\n  - /srv/a\n  - roman=/srv/b, c\n"
                             "origins: ['https://a', 'https://b']\n"
                             "page: off\n"
                             "trust: true\n")});
  EXPECT_EQ(model_, "/srv/base");
  EXPECT_EQ(port_, 9000);
  EXPECT_EQ(share_, 0.25);
  EXPECT_THAT(dirs_, testing::ElementsAre("/srv/a", "roman=/srv/b, c"));
  EXPECT_THAT(origins_, testing::ElementsAre("https://a", "https://b"));
  EXPECT_FALSE(page_);
  EXPECT_TRUE(trust_);
}

TEST_F(ConfigFileTest, AFlagGoesBeforeAVariableAndAVariableBeforeTheFile) {
  const std::string path = written("model: from-file\nport: 1\nshare: 1\ntrust: false\norigins: []\nlora_dir: one\n");
  setenv("CHORUS_TEST_CONF_PORT", "2", 1);
  setenv("CHORUS_TEST_CONF_MODEL", "from-variable", 1);
  setenv("CHORUS_TEST_CONF_CONFIG", path.c_str(), 1);
  setenv("CHORUS_TEST_CONF_API_KEY", "swordfish", 1);
  parse({"from-flag", "--page=on"});
  EXPECT_EQ(model_, "from-flag");
  EXPECT_EQ(port_, 2);
  EXPECT_EQ(share_, 1);
  EXPECT_FALSE(trust_);
  EXPECT_TRUE(origins_.empty());
  EXPECT_THAT(dirs_, testing::ElementsAre("one"));
  const std::string text = configuration();
  const auto line = [&](const std::string& name) {
    const size_t at = text.find("\n  " + name + " ");
    return at == std::string::npos ? "" : text.substr(at + 3, text.find('\n', at + 1) - at - 3);
  };
  EXPECT_THAT(line("model"), testing::EndsWith(" from-flag  [flag]"));
  EXPECT_THAT(line("port"), testing::EndsWith(" 2  [CHORUS_TEST_CONF_PORT]"));
  EXPECT_THAT(line("share"), testing::EndsWith(" 1  [" + path + ", line 3]"));
  EXPECT_THAT(line("trust"), testing::EndsWith(" false  [" + path + ", line 4]"));
  EXPECT_THAT(line("origins"), testing::EndsWith(" (unset)  [default]"));
  EXPECT_THAT(line("page"), testing::EndsWith(" on  [flag]"));
  EXPECT_THAT(line("api_key"), testing::EndsWith(" (hidden)  [CHORUS_TEST_CONF_API_KEY]"));
  EXPECT_THAT(text, testing::Not(HasSubstr("swordfish")));
}

TEST_F(ConfigFileTest, AnEmptyFileSetsNothing) {
  for (const char* text : {"", "# all lines are comments\n", "---\n", "{}\n"}) {
    app_.clear();
    parse({"--config", written(text)});
    EXPECT_EQ(port_, 8000);
  }
}

TEST_F(ConfigFileTest, RefusalsNameFileLineAndKey) {
  EXPECT_EQ(refusalOf("port: 1\nprot: 2\n"), "FILE: line 2: prot: no flag of chorus serve; did you mean port?");
  EXPECT_EQ(refusalOf("max_model_len: 2\n"), "FILE: line 1: max_model_len: no flag of chorus serve; use --max_seq_len");
  EXPECT_EQ(refusalOf("help: true\n"),
            "FILE: line 1: help: no flag of chorus serve; chorus serve --help lists the flags");
  EXPECT_EQ(refusalOf("\nlora_dir: a\nport: 2\nlora-dir: b\n"),
            "FILE: line 4: lora-dir: is the same flag as lora_dir in line 2; remove one");
  EXPECT_EQ(refusalOf("config: other.yaml\n"), "FILE: line 1: config: a configuration file cannot name another one");
  EXPECT_EQ(refusalOf("port: 70000\n"), "FILE: line 1: port: 70000 is out of range; use 0 to 65535");
  EXPECT_EQ(refusalOf("port: eight\n"), "FILE: line 1: port: eight is not a whole number; use 0 to 65535");
  EXPECT_EQ(refusalOf("port: '80'\n"), "FILE: line 1: port: is text; write the number without quotes");
  EXPECT_EQ(refusalOf("port: 1.5\n"), "FILE: line 1: port: 1.5 is not a whole number; use 0 to 65535");
  EXPECT_EQ(refusalOf("port: yes\n"), "FILE: line 1: port: must be a number");
  EXPECT_EQ(refusalOf("port:\n"), "FILE: line 1: port: has no value; give one, or remove the line");
  EXPECT_EQ(refusalOf("port: [1]\n"), "FILE: line 1: port: is a list; the flag takes a single value");
  EXPECT_EQ(refusalOf("port: {a: 1}\n"), "FILE: line 1: port: has keys of its own; the flag takes no such value");
  EXPECT_EQ(refusalOf("model: 7\n"), "FILE: line 1: model: is a number; put it in quotes if it is meant as text");
  EXPECT_EQ(refusalOf("model: no\n"),
            "FILE: line 1: model: is true or false; put the word in quotes if it is meant as text");
  EXPECT_EQ(refusalOf("model: ''\n"), "FILE: line 1: model: is empty; give a value, or remove the line");
  EXPECT_EQ(refusalOf("trust: 1\n"), "FILE: line 1: trust: must be true or false");
  EXPECT_EQ(refusalOf("page: maybe\n"), "FILE: line 1: page: maybe is none of its values; use on|off");
  EXPECT_EQ(refusalOf("lora_dir: [a, [b]]\n"), "FILE: line 1: lora_dir: is a list; the flag takes a single value");
  EXPECT_EQ(refusalOf("- port\n"), "FILE: is no map; write one line NAME: VALUE for each flag");
  EXPECT_THAT(refusalOf("port: 1\nport: 2\n"),
              testing::StartsWith("FILE: line 2, column 1: the key 'port' occurs twice"));
  EXPECT_THAT(errorOf([&] { parse({"--config", "/nowhere.yaml"}); }), HasSubstr("/nowhere.yaml"));
}

TEST_F(ConfigFileTest, LaterErrorsNameThePlaceOfAValueThatTheFileGave) {
  const std::string path = written("lora_dir: /nowhere\nport: 5\n");
  parse({"--config", path, "--port", "6"});
  EXPECT_EQ(file_.withPlaces("--lora_dir: no directory; see --port and --lora_dir"),
            path + ": line 1: lora_dir: no directory; see --port and lora_dir (" + path + ", line 1)");
}

}  // namespace
}  // namespace chorus
