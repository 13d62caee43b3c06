// The demo's command: one prompt, for the base and five adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "command.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

// An answer of one token ends with its first step. A prompt that started before the others' adapters were loaded would
// share no step with them.
TEST(OneBatch, AllSixRequestsOfTheDemoRunInOneBatch) {
  const std::filesystem::path demo = test::sourceDir() / "examples/demo";
  const std::filesystem::path engine = testEngine(demo / "base", DType::kBFloat16);
  std::vector<std::string> arguments{
      "run", "--engine_dir", engine, "--tokenizer_dir", demo / "base", "--apply_chat_template", "--max_output_len",
      "1",   "--input_text"};
  arguments.insert(arguments.end(), 6, "eleven wolves and four birds");
  arguments.push_back("--lora_dir");
  for (const char* name : {"shout", "roman", "json", "sum", "german"}) arguments.push_back(demo / "adapters" / name);
  arguments.insert(arguments.end(), {"--lora_task_uids", "-1", "0", "1", "2", "3", "4"});
  const CommandResult result = runChorus(arguments);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.out, testing::HasSubstr("\nLargest batch: 6 requests with 5 adapters in one step\n"));
}

}  // namespace
}  // namespace chorus::test
