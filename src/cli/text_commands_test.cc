#include "cli/text_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

class TextCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) / ("text_commands_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
    std::filesystem::copy_file(test::sourceDir().string() + "/tests/goldens/text/tokenizers/llama2.json",
                               dir_ / "tokenizer.json");
    writeFileAtomically(
        dir_ / "tokenizer_config.json",
        R"({"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}"})");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // The output of `chorus COMMAND` for `input`, or "error: " and the error line.
  std::string run(std::vector<std::string> command, const std::string& input) {
    writeFileAtomically(dir_ / "in.jsonl", input);
    CLI::App app;
    addTextCommands(app);
    for (const char* name : {"tokenizer_dir", "input_file", "output_file"}) {
      command.push_back(std::string("--") + name);
      command.push_back(dir_ / (name[0] == 't' ? "" : name[0] == 'i' ? "in.jsonl" : "out.jsonl"));
    }
    std::reverse(command.begin(), command.end());
    try {
      app.parse(command);
    } catch (const Error& e) {
      return std::string("error: ") + e.what();
    }
    return readFile(dir_ / "out.jsonl", 1 << 20);
  }

  std::filesystem::path dir_;
};

TEST_F(TextCommandsTest, TokenizesAndBack) {
  const std::string texts = "\"hello w\xC3\xB6rld\"\n\"\"\n";
  const std::string ids = run({"tokenize"}, texts);
  EXPECT_THAT(ids, testing::StartsWith("[1,"));
  EXPECT_EQ(run({"detokenize", "--skip_special_tokens"}, ids), texts);
  EXPECT_THAT(run({"detokenize"}, ids), testing::HasSubstr("<s>"));
  EXPECT_EQ(run({"detokenize"}, run({"tokenize", "--no_special_tokens"}, texts)), texts);
}

TEST_F(TextCommandsTest, RendersChats) {
  EXPECT_EQ(run({"chat-template"}, "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n"), "\"<s>hi\"\n");
  EXPECT_EQ(
      run({"chat-template", "--add_generation_prompt"}, "{\"messages\": [{\"content\": \"hi\"}], \"tools\": null}\n"),
      "\"<s>hi>\"\n");
}

// The results are those of transformers: an integer keeps its digits, and a missing key is undefined, which is not
// none.
TEST_F(TextCommandsTest, RendersWideIntegersAndMissingContent) {
  writeFileAtomically(dir_ / "tokenizer_config.json",
                      R"({"chat_template": "{{ n }} {{ tools | tojson }} {{ messages[0]['content'] is not none }}"})");
  EXPECT_EQ(run({"chat-template"}, R"({"messages": [{"role": "user"}], "tools": [{"most": 18446744073709551616}],)"
                                   R"( "chat_template_kwargs": {"n": -123456789012345678901}})"
                                   "\n"),
            R"("-123456789012345678901 [{\"most\": 18446744073709551616}] True")"
            "\n");
}

TEST_F(TextCommandsTest, NamesTheBadLine) {
  EXPECT_THAT(run({"tokenize"}, "\"a\"\n5\n"), testing::HasSubstr("in.jsonl line 2: expected a JSON string"));
  EXPECT_THAT(run({"tokenize"}, "\"a\"\n\n"), testing::HasSubstr("line 2"));
  EXPECT_THAT(run({"detokenize"}, "[1, 99999]\n"), testing::HasSubstr("from 0 to"));
  EXPECT_THAT(run({"chat-template"}, "{\"messages\": [], \"x\": 1}\n"), testing::HasSubstr("unknown key 'x'"));
  EXPECT_THAT(run({"chat-template"}, "{\"messages\": []}\n"), testing::HasSubstr("line 1"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out.jsonl"));
}

}  // namespace
}  // namespace chorus
