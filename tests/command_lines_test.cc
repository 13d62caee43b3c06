// Every command line of command_lines.txt works with another program's name, on small models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "chain_opt.h"
#include "command.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Words = std::vector<std::string>;

// The command of chorus that does the work of a program of TensorRT-LLM.
const std::map<std::string, std::string> kCommands = {{"convert_checkpoint.py", "convert"},
                                                      {"trtllm-build", "build"},
                                                      {"hf_lora_convert.py", "lora-convert"},
                                                      {"normalize_weights.py", "dora-normalize"},
                                                      {"summarize.py", "summarize"}};

struct Script {
  std::string name;
  std::vector<Words> commands;  // the arguments of chorus
};

// Splits a line at white space outside double quotes.
Words splitWords(const std::string& line) {
  Words words;
  bool quoted = false, open = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && std::isspace(static_cast<unsigned char>(c)) != 0) {
      open = false;
      continue;
    } else {
      if (!open) words.emplace_back();
      words.back() += c;
    }
    if (c == '"' && !open) words.emplace_back();
    open = true;
  }
  return words;
}

// Replaces the words up to the program's name by the command of chorus.
Words withOurName(const Words& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const auto found = kCommands.find(fs::path(words[i]).filename());
    if (found == kCommands.end()) continue;
    Words ours = {found->second};
    ours.insert(ours.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
    return ours;
  }
  throw std::runtime_error("no program of TensorRT-LLM in: " + testing::PrintToString(words));
}

void replaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::vector<Script> readScripts(const fs::path& path) {
  std::vector<Script> scripts;
  std::map<std::string, std::string> variables;
  std::ifstream file(path);
  std::string line, command;
  while (std::getline(file, line)) {
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[') {
      scripts.push_back({.name = line.substr(1, line.find(']') - 1)});
      variables.clear();
      continue;
    }
    command += line;
    if (command.back() == '\\') {
      command.back() = ' ';
      continue;
    }
    const size_t equals = command.find('=');
    if (equals != std::string::npos && command.find(' ') == std::string::npos) {
      variables["${" + command.substr(0, equals) + "}"] = command.substr(equals + 1);
    } else {
      for (const auto& [name, value] : variables) replaceAll(command, name, value);
      replaceAll(command, "/tmp/", "tmp/");
      scripts.back().commands.push_back(withOurName(splitWords(command)));
    }
    command.clear();
  }
  return scripts;
}

// The value of a flag; empty if it is not given.
std::string valueOf(const Words& command, const std::string& flag) {
  for (size_t i = 0; i + 1 < command.size(); ++i) {
    if (command[i] == flag) return command[i + 1];
  }
  return "";
}

// Expects the files that the command must have written.
void expectResult(const Words& command, const CommandResult& result, const fs::path& work) {
  const std::string flag = command[0] == "lora-convert" || command[0] == "dora-normalize" ? "-o" : "--output_dir";
  const fs::path output = work / valueOf(command, flag);
  if (command[0] == "convert") {
    const std::string tp_size = valueOf(command, "--tp_size");
    const Json config = readJsonFile(output / "config.json");
    EXPECT_EQ(config.at("dtype"), valueOf(command, "--dtype"));
    EXPECT_EQ(config.at("mapping").at("world_size"), tp_size.empty() ? 1 : std::stoi(tp_size));
    for (int rank = 0; rank < config.at("mapping").at("world_size"); ++rank) {
      EXPECT_TRUE(fs::exists(output / ("rank" + std::to_string(rank) + ".safetensors")));
    }
  } else if (command[0] == "build") {
    EXPECT_TRUE(fs::exists(output / "rank0.engine"));
    const Json config = readJsonFile(output / "config.json").at("build_config");
    for (const char* limit : {"max_batch_size", "max_input_len", "max_seq_len"}) {
      EXPECT_EQ(config.at(limit), std::stoi(valueOf(command, std::string("--") + limit))) << limit;
    }
    const auto targets = std::find(command.begin(), command.end(), "--lora_target_modules");
    if (targets != command.end()) {
      EXPECT_EQ(config.at("lora_target_modules"), Json(Words(targets + 1, command.end())));
    }
  } else if (command[0] == "lora-convert") {
    for (const char* file : {"model.lora_config.npy", "model.lora_weights.npy"}) EXPECT_TRUE(fs::exists(output / file));
  } else if (command[0] == "dora-normalize") {
    EXPECT_TRUE(readJsonFile(output / "adapter_config.json").at("use_dora"));
  } else {
    EXPECT_THAT(result.out, HasSubstr("TensorRT-LLM beam 0 result\n  rouge1: 18."));
  }
}

// The models and adapters under the names that the documents give them.
void makeModels(const fs::path& work) {
  const fs::path demo = sourceDir() / "examples/demo";
  fs::create_directory_symlink(demo / "base", work / "llama-7b-hf");
  fs::create_directory_symlink(demo / "s2/roman_qkv", work / "Japanese-Alpaca-LoRA-7b-v0");
  fs::create_directory_symlink(demo / "adapters/shout", work / "luotuo-lora-7b-0.1");
  fs::create_directory_symlink(demo / "adapters/json", work / "dora-7b");
  // Words that summaries have; the mean rouge1 of this answer to the built-in articles is 18.6.
  writeChainOpt({"the", "of", "and", "in", "that", "with", "a", "is"}, work / "opt-125m");
}

void runScript(const Script& script, const fs::path& work) {
  for (const Words& command : script.commands) {
    SCOPED_TRACE(script.name + ": " + testing::PrintToString(command));
    const CommandResult result = runChorus(command, "", work);
    ASSERT_EQ(result.status, 0) << result.errors;
    expectResult(command, result, work);
  }
}

const std::vector<Script>& scripts() {
  static const std::vector<Script> kScripts = readScripts(sourceDir() / "tests/command_lines.txt");
  return kScripts;
}

class CommandLines : public testing::TestWithParam<size_t> {};

TEST_P(CommandLines, Work) {
  const Script& script = scripts()[GetParam()];
  ASSERT_GE(script.commands.size(), 3U);
  const TempDir work;
  makeModels(work.path());
  runScript(script, work.path());
  if (script.name != "opt") return;
  // The config.json of the document, with the sizes of this model.
  const Json config = readJsonFile(work.path() / "opt/125M/trt_ckpt/fp16/2-gpu/config.json");
  const Json expected = Json::parse(R"({
    "architecture": "OPTForCausalLM", "dtype": "float16", "logits_dtype": "float32", "num_hidden_layers": 2,
    "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 1509, "position_embedding_type": "learned_absolute",
    "max_position_embeddings": 2048, "hidden_act": "relu", "use_parallel_embedding": false,
    "embedding_sharding_dim": 0, "do_layer_norm_before": true})");
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(config.value(key, Json()), value) << key;
  EXPECT_EQ(config.at("mapping").at("world_size"), 2);
  EXPECT_EQ(config.at("mapping").at("tp_size"), 2);
}

INSTANTIATE_TEST_SUITE_P(Documents, CommandLines, testing::Range(size_t{0}, scripts().size()),
                         [](const auto& info) { return scripts()[info.param].name; });

TEST(CommandLinesFile, HasEveryProgram) {
  std::map<std::string, int> count;
  for (const Script& script : scripts()) {
    for (const Words& command : script.commands) ++count[command.front()];
  }
  for (const auto& [program, command] : kCommands) EXPECT_GT(count[command], 0) << program;
}

}  // namespace
}  // namespace chorus::test
