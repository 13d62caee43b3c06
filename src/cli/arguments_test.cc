#include "cli/arguments.h"

#include <gtest/gtest.h>

#include "base/testing/error_of.h"
#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/other_servers_flags.h"

namespace chorus {
namespace {

using Words = std::vector<std::string>;

class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() { addCommands(app_); }
  Words spelled(const Words& words) { return spelledAsDefined(app_, words); }
  std::string refusalOf(const Words& words) {
    return errorOf([&] { spelledAsDefined(app_, words); });
  }
  CLI::App app_;
};

TEST_F(ArgumentsTest, DashesAndUnderscoresAreTheSameEverywhere) {
  EXPECT_EQ(spelled({"serve", "m", "--lora-dir", "a-b", "--max-num_tokens=5"}),
            (Words{"serve", "m", "--lora_dir", "a-b", "--max_num_tokens=5"}));
  EXPECT_EQ(spelled({"lora_convert", "--in_file", "x", "--storage_type", "float16"}),
            (Words{"lora-convert", "--in-file", "x", "--storage-type", "float16"}));
  EXPECT_EQ(spelled({"bench", "serve", "--api-key-env", "X"}), (Words{"bench", "serve", "--api_key_env", "X"}));
}

TEST_F(ArgumentsTest, EveryFlagOfEveryCommandIsTakenInBothSpellings) {
  const auto visit = [this](const auto& self, const CLI::App& command, const Words& called) -> void {
    for (const CLI::App* sub : command.get_subcommands(nullptr)) {
      Words path = called;
      path.push_back(sub->get_name());
      self(self, *sub, path);
    }
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        for (const auto& [from, to] : {std::pair('_', '-'), std::pair('-', '_')}) {
          std::string other = name;
          std::replace(other.begin(), other.end(), from, to);
          Words given = called, meant = called;
          given.push_back("--" + other);
          meant.push_back("--" + name);
          if (option->get_items_expected_max() > 0) {
            given.emplace_back("1");
            meant.emplace_back("1");
          }
          EXPECT_EQ(spelled(given), meant);
        }
      }
    }
  };
  visit(visit, app_, {});
}

TEST_F(ArgumentsTest, ValuesStayAsTheyAre) {
  EXPECT_EQ(spelled({"run", "--input_text", "--no-such-flag", "a-b", "--max-output-len", "3"}),
            (Words{"run", "--input_text", "--no-such-flag", "a-b", "--max_output_len", "3"}));
  EXPECT_EQ(spelled({"run", "--lora-task-uids", "-1", "0", "-1"}), (Words{"run", "--lora_task_uids", "-1", "0", "-1"}));
  EXPECT_EQ(spelled({"run", "--lora-dir=a-b=c"}), (Words{"run", "--lora_dir=a-b=c"}));
  EXPECT_EQ(spelled({"inspect", "--", "--kernel"}), (Words{"inspect", "--", "--kernel"}));
  EXPECT_EQ(spelled({"lora-convert", "-i", "-x", "-oout"}), (Words{"lora-convert", "-i", "-x", "-oout"}));
}

TEST_F(ArgumentsTest, AnUnknownFlagSuggestsTheNearestOne) {
  EXPECT_EQ(refusalOf({"serve", "m", "--lora_dri", "x"}),
            "--lora_dri: no flag of chorus serve; did you mean --lora_dir?");
  EXPECT_EQ(refusalOf({"serve", "m", "--max-batchsize=4"}),
            "--max-batchsize: no flag of chorus serve; did you mean --max_batch_size?");
  EXPECT_EQ(refusalOf({"bench", "throughput", "--engine", "x"}),
            "--engine: no flag of chorus bench throughput; did you mean --engine_dir?");
  EXPECT_EQ(refusalOf({"serve", "--gpu-memory"}),
            "--gpu-memory: no flag of chorus serve; chorus serve --help lists them");
  EXPECT_EQ(refusalOf({"serve", "m", "--max_lora", "8"}),
            "--max_lora: no flag of chorus serve; did you mean --max_lora_rank?");
  EXPECT_EQ(refusalOf({"serve", "-x"}), "-x: no flag of chorus serve; chorus serve --help lists them");
  EXPECT_EQ(refusalOf({"--sreve"}), "--sreve: no flag of chorus; chorus --help lists them");
}

TEST_F(ArgumentsTest, AFlagOfAnotherServerIsRefusedWithWhatToUseInstead) {
  EXPECT_EQ(refusalOf({"serve", "m", "--max-model-len", "4096"}),
            "--max-model-len: no flag of chorus serve; use --max_seq_len");
  EXPECT_EQ(refusalOf({"serve", "m", "--enable-lora"}),
            "--enable-lora: no flag of chorus serve; not needed: adapters are served if --lora_dir or --lora_modules "
            "is given");
  EXPECT_EQ(refusalOf({"serve", "m", "--lora=a"}), "--lora: no flag of chorus serve; use --lora_dir");
  EXPECT_EQ(refusalOf({"serve", "-t", "8"}), "-t: no flag of chorus serve; use --threads");
  EXPECT_EQ(refusalOf({"serve", "m", "-ngl", "99"}),
            "-ngl: no flag of chorus serve; not needed: the model runs on the CPU");
  EXPECT_EQ(refusalOf({"run", "--max-model-len", "1"}),
            "--max-model-len: no flag of chorus run; chorus run --help lists them");
}

TEST_F(ArgumentsTest, AdviceNamesFlagsThatThereAre) {
  const CLI::App* serve = app_.get_subcommand("serve");
  for (const OtherServersFlag& flag : otherServersFlags()) {
    const std::string name = (flag.name.starts_with('-') ? "" : "--") + std::string(flag.name);
    EXPECT_EQ(serve->get_option_no_throw(name), nullptr) << name << " is a flag here";
    const std::string advice(flag.advice);
    for (size_t at = advice.find("--"); at != std::string::npos; at = advice.find("--", at + 2)) {
      const std::string named = advice.substr(at, advice.find_first_of(" ,;", at) - at);
      EXPECT_NE(serve->get_option_no_throw(named), nullptr) << name << ": " << named;
    }
  }
}

TEST_F(ArgumentsTest, AnUnknownCommandSuggestsTheNearestOne) {
  EXPECT_EQ(refusalOf({"sreve", "m"}), "sreve: no command of chorus; did you mean serve?");
  EXPECT_EQ(refusalOf({"bench", "kernel"}), "kernel: no command of chorus bench; did you mean kernels?");
  EXPECT_EQ(refusalOf({}), "chorus needs a command; chorus --help lists them");
  EXPECT_EQ(refusalOf({"bench"}), "chorus bench needs a command; chorus bench --help lists them");
  EXPECT_EQ(refusalOf({"bench", "--help"}), "");
  EXPECT_EQ(refusalOf({"frobnicate"}), "frobnicate: no command of chorus; chorus --help lists them");
}

TEST_F(ArgumentsTest, AFlagWithoutItsValueIsNamed) {
  EXPECT_EQ(refusalOf({"serve", "m", "--lora-dir"}), "--lora_dir needs a value");
  EXPECT_EQ(refusalOf({"serve", "m", "--lora_dir="}), "--lora_dir needs a value");
  EXPECT_EQ(refusalOf({"serve", "m", "--lora_dir", "--port", "8000"}),
            "--lora_dir needs a value, and --port is a flag; write --lora_dir=--port if it is the value");
  EXPECT_EQ(refusalOf({"lora-convert", "-i"}), "-i needs a value");
  EXPECT_EQ(refusalOf({"build", "--gemm_plugin"}), "--gemm_plugin needs a value") << "also of flags that --help hides";
}

TEST_F(ArgumentsTest, AFlagOfOneValueIsGivenOnce) {
  EXPECT_EQ(refusalOf({"serve", "--port", "1", "--port", "2"}), "--port is given twice");
  EXPECT_EQ(refusalOf({"serve", "--lora_dir", "a", "--lora-dir", "b"}), "");
}

TEST(NearestNameTest, IsBoundedByTheWordsLength) {
  const Words names{"port", "host", "max_batch_size", "tp_size"};
  EXPECT_EQ(nearestName("prot", names), "port");
  EXPECT_EQ(nearestName("max-bacth-size", names), "max_batch_size");
  EXPECT_EQ(nearestName("max_batch", names), "max_batch_size") << "what it begins";
  EXPECT_EQ(nearestName("lora", names), "") << "two edits in a short word";
  EXPECT_EQ(nearestName("lora", {"port", "lora_modules", "lora_dir"}), "lora_dir");
  EXPECT_EQ(nearestName("ports", {"port", "ports_of_all"}), "ports_of_all") << "before a name at one edit";
  EXPECT_EQ(nearestName("zzzz", names), "");
  EXPECT_EQ(nearestName("", names), "");
  EXPECT_EQ(nearestName(std::string(100'000, 'x'), names), "");
}

// The text of the error with which parsing ends.
std::string parseErrorOf(CLI::App& app, Words words) {
  words = spelledAsDefined(app, std::move(words));
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& e) {
    return e.what();
  }
  return "";
}

TEST_F(ArgumentsTest, ValuesOutOfRangeSayTheRange) {
  EXPECT_EQ(parseErrorOf(app_, {"serve", "m", "--port", "70000"}), "--port: 70000 is out of range; use 0 to 65535");
  EXPECT_EQ(parseErrorOf(app_, {"serve", "m", "--port", "http"}), "--port: http is not a whole number; use 0 to 65535");
  EXPECT_EQ(parseErrorOf(app_, {"serve", "m", "--kv-cache-free-memory-fraction", "1.5"}),
            "--kv_cache_free_memory_fraction: 1.5 is out of range; use 0 to 1");
  EXPECT_EQ(parseErrorOf(app_, {"serve", "m", "--dtype", "fp8"}),
            "--dtype: fp8 is none of its values; use auto|float32|float16|bfloat16");
  EXPECT_EQ(parseErrorOf(app_, {"convert", "--model_dir", "m", "--output_dir", "o", "--tp_size", "0"}),
            "--tp_size: 0 is out of range; use 1 to 65536");
  EXPECT_EQ(parseErrorOf(app_, {"serve", "m", "--lora-modules", "dir"}),
            "--lora_modules: dir has no name; use NAME=PATH");
  EXPECT_EQ(parseErrorOf(app_, {"serve", "m", "--lora-modules", "a=b", R"({"name": "c", "path": ""})"}),
            R"(--lora_modules: 'path' must be a text that is not empty; use {"name": NAME, "path": PATH})");
}

TEST_F(ArgumentsTest, EveryNumberHasARange) {
  const auto visit = [](const auto& self, const CLI::App& command) -> void {
    for (const CLI::App* sub : command.get_subcommands(nullptr)) self(self, *sub);
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_items_expected_max() == 0) continue;
      const std::string type = option->get_type_name();
      const bool number = type.find("INT") != std::string::npos || type.find("FLOAT") != std::string::npos;
      EXPECT_TRUE(!number || type.find(':') != std::string::npos)
          << calledAs(command) << " " << option->get_name() << ": " << type;
    }
  };
  visit(visit, app_);
}

}  // namespace
}  // namespace chorus
