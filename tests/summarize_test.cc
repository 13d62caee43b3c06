// `chorus summarize`: scores, perplexity, thresholds, data files, adapters, and the process of --test_hf.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "chain_opt.h"
#include "command.h"
#include "support/test_paths.h"
#include "teacher_forced.h"
#include "test_engines.h"
#include "text/text_codec.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const fs::path kDemo = sourceDir() / "examples/demo";

class Summarize : public testing::Test {
 protected:
  // An OPT whose answers are "the of a".
  Summarize() {
    writeChainOpt({"the", "of", "a"}, model_);
    std::ofstream(data_) << "{\"article\": \"A ship left.\", \"highlights\": \"The end\"}\n"
                            "{\"article\": \"Two boats did n't.\", \"highlights\": \"of a\"}\n"
                            "{\"article\": \"Nothing.\", \"highlights\": \"none\"}\n";
  }

  CommandResult summarize(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"summarize", "--hf_model_dir", model_, "--dataset_path", data_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runChorus(arguments);
  }
  CommandResult ofEngine(std::vector<std::string> more) {
    more.insert(more.begin(),
                {"--test_trt_llm", "--engine_dir", testEngine(model_, DType::kFloat32), "--threads", "2"});
    return summarize(std::move(more));
  }
  static double numberAfter(const std::string& name, const CommandResult& result) {
    const size_t at = result.out.find(name);
    if (at != std::string::npos) return std::stod(result.out.substr(at + name.size()));
    ADD_FAILURE() << name << " is not in: " << result.out << result.errors;
    return 0;
  }
  static void refuses(const CommandResult& result, const std::string& part) {
    EXPECT_EQ(result.status, 2) << result.errors;
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(part));
  }
  // A program that stands in for Python: stores its input, and prints `output` instead of an answer.
  std::string fakePython(const std::string& output, int status = 0) {
    const fs::path path = dir_.path() / "fake_python";
    writeFileAtomically(dir_.path() / "answers", output);
    writeFileAtomically(path, "#!/bin/sh\ncat > " + (dir_.path() / "job.json").string() + "\ncat " +
                                  (dir_.path() / "answers").string() + "\necho 'the last words' >&2\nexit " +
                                  std::to_string(status) + "\n");
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  const TempDir dir_;
  const fs::path model_ = dir_.path() / "model", data_ = dir_.path() / "data.jsonl";
};

// Answers are "the of a". F measures of rouge1: 2 * 1 / (2 + 3), 2 * 2 / (2 + 3), 0; of rouge2: 0, 2 / (1 + 2), 0.
TEST_F(Summarize, ScoresAreThoseOfTheAnswers) {
  const CommandResult result = ofEngine({"--estimate_accuracy_std_dev", "--output_dir", dir_.path() / "out"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_NEAR(numberAfter("  rouge1: ", result), 40, 1e-9);
  EXPECT_NEAR(numberAfter("  rouge2: ", result), 200.0 / 9, 1e-9);
  EXPECT_NEAR(numberAfter("  rougeLsum: ", result), 40, 1e-9);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("TensorRT-LLM (total output tokens: 12)\n"),
                    HasSubstr("TensorRT-LLM (tokens per second: "), HasSubstr("TensorRT-LLM (total latency: "),
                    HasSubstr("\n Output:  the of a\n"), Not(HasSubstr("perplexity"))));
  const std::string written = readFile(dir_.path() / "out/trtllm.out", 1 << 16);
  EXPECT_THAT(written, AllOf(HasSubstr("Engine path: "), HasSubstr("Tokenizer path: " + model_.string()),
                             HasSubstr("[2] [Beam 0]  the of a\n")));
  // Whatever is in a batch.
  EXPECT_NEAR(numberAfter("  rouge1: ", ofEngine({"--estimate_accuracy_std_dev", "--batch_size", "3"})), 40, 1e-9);
  EXPECT_THAT(ofEngine({"--max_ite", "1", "--output_len", "2"}).out, HasSubstr("(total output tokens: 2)\n"));
}

TEST_F(Summarize, AMissedThresholdIsExitStatus1) {
  const CommandResult missed = ofEngine({"--check_accuracy", "--tensorrt_llm_rouge1_threshold=90"});
  EXPECT_EQ(missed.status, 1);
  EXPECT_THAT(missed.errors, AllOf(HasSubstr("[FAILED] rouge1 ("), HasSubstr(") is smaller than threshold (90.0).\n")));
  EXPECT_THAT(missed.out, HasSubstr("  rougeLsum: ")) << "the scores are printed all the same";
  EXPECT_EQ(ofEngine({"--check_accuracy", "--tensorrt_llm_rouge1_threshold", "20"}).status, 0);
  EXPECT_EQ(ofEngine({"--tensorrt_llm_rouge1_threshold", "90"}).status, 0);
  const CommandResult perplexed = ofEngine({"--check_accuracy", "--eval_ppl", "--tensorrt_llm_rouge1_threshold", "20",
                                            "--tensorrt_llm_ppl_threshold", "1.5"});
  EXPECT_EQ(perplexed.status, 1);
  EXPECT_THAT(perplexed.errors, HasSubstr("[FAILED] average PPL ("));
}

// The perplexity of a prompt and its answer, from the logits of all their tokens.
TEST_F(Summarize, PerplexityIsThatOfTheLogits) {
  const fs::path engine = testEngine(kDemo / "base", DType::kFloat32);
  const std::string text = "seven cats and five dogs walk to the bridge. A wolf is there.";
  std::ofstream(data_) << Json({{"article", text}, {"highlights", ""}}).dump();
  const CommandResult result =
      runChorus({"summarize", "--test_trt_llm", "--eval_ppl", "--engine_dir", engine, "--tokenizer_dir", kDemo / "base",
                 "--dataset_path", data_, "--output_len", "5", "--end_id", "-1", "--threads", "2"});
  ASSERT_EQ(result.status, 0) << result.errors;

  const auto codec = loadTextCodec(kDemo / "base");
  std::vector<int32_t> tokens = codec->encode(text + " TL;DR:", true);
  RankGroup ranks(RankGroup::loadEngines(engine), {.name = "cpu", .threads = 2}, kTeacherForcedOptions);
  std::vector<float> logits;
  for (int i = 0; i < 5; ++i) {
    logits = teacherForced(ranks, tokens, 0, nullptr);
    const std::span<const float> last(logits.end() - static_cast<std::ptrdiff_t>(logits.size() / tokens.size()),
                                      logits.end());
    tokens.push_back(static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
  }
  const size_t vocab = logits.size() / (tokens.size() - 1);
  double loss = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    double sum = 0;
    for (size_t j = 0; j < vocab; ++j) sum += std::exp(double{logits[i * vocab + j]});
    loss += std::log(sum) - logits[i * vocab + static_cast<size_t>(tokens[i + 1])];
  }
  const double expected = std::exp(loss / static_cast<double>(tokens.size() - 1));
  EXPECT_NEAR(numberAfter("  Per-token perplexity: ", result), expected, 1e-4 * expected);
}

TEST_F(Summarize, EvalContextPplPrintsPerplexityAlone) {
  std::ofstream(data_) << "text,id\n\"A ship, and a boat.\",1\nAnother text.,2\n";
  fs::rename(data_, dir_.path() / "test.csv");
  const CommandResult result = runChorus({"summarize", "--test_trt_llm", "--eval_task", "eval_context_ppl",
                                          "--engine_dir", testEngine(model_, DType::kFloat32), "--hf_model_dir", model_,
                                          "--dataset_dir", dir_.path(), "--threads", "2"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.out, AllOf(HasSubstr("(total output tokens: 2)"), HasSubstr("Per-token perplexity: "),
                                Not(HasSubstr("rouge")), Not(HasSubstr("Reference"))));
}

TEST_F(Summarize, AnAdapterAnswers) {
  const fs::path engine = testEngine(kDemo / "base", DType::kFloat32);
  std::ofstream(data_)
      << Json({{"article", "<|user|>eleven wolves and four birds<|answer|>"}, {"highlights", "x"}}).dump();
  const auto with = [&](const std::string& uid) {
    return runChorus({"summarize", "--test_trt_llm", "--engine_dir", engine, "--tokenizer_dir", kDemo / "base",
                      "--dataset_path", data_, "--lora_dir", kDemo / "adapters/shout", "--lora_task_uids", uid,
                      "--output_len", "8", "--threads", "2"});
  };
  const CommandResult adapted = with("0"), base = with("-1");
  ASSERT_EQ(adapted.status, 0) << adapted.errors;
  ASSERT_EQ(base.status, 0) << base.errors;
  const auto answer = [](const CommandResult& result) {
    return result.out.substr(result.out.find("Output: ")).substr(0, 40);
  };
  EXPECT_NE(answer(adapted), answer(base));
  refuses(with("1"), "--lora_task_uids 1: --lora_dir holds 1 adapters");
}

TEST_F(Summarize, FlagsAreActingAcceptedOrRefusedByName) {
  EXPECT_EQ(
      ofEngine({"--rouge_dir", "x", "--use_py_session", "--multi_block_mode", "true", "--gpu_weights_percent", "1",
                "--max_ite", "1", "--kv_cache_enable_block_reuse", "--enable_chunked_context", "--use_stemmer"})
          .status,
      0);
  refuses(ofEngine({"--medusa_choices", "[[0]]"}), "--medusa_choices: speculation is not served");
  refuses(ofEngine({"--num_beams", "2"}), "--num_beams 2: beam search is not served");
  refuses(ofEngine({"--streaming_interval", "x"}), "--streaming_interval x: use a whole number");
  refuses(ofEngine({"--eval_task", "translate"}), "summarize|summarize_long|code_completion|eval_context_ppl");
  refuses(ofEngine({"--eval_task", "code_completion"}), "record 1 has no 'prompt'");
  refuses(ofEngine({"--min_input_length", "900"}), "--min_input_length 900: no prompt has more tokens");
  BuildConfig short_prompts = testBuildConfig();
  short_prompts.max_input_len = 4;
  refuses(summarize({"--test_trt_llm", "--engine_dir", testEngine(model_, DType::kFloat32, short_prompts)}),
          "article 0: ");
  refuses(summarize({}), "give --test_trt_llm or --test_hf");
  refuses(runChorus({"summarize", "--test_trt_llm"}), "give --hf_model_dir or --tokenizer_dir");
}

TEST_F(Summarize, TransformersAnswersAreScoredTheSame) {
  const std::string python =
      fakePython(R"({"timed": false, "article": 0, "text": "sample", "tokens": 1, "seconds": 9, "perplexity": 1})"
                 "\n"
                 R"({"timed": true, "article": 0, "text": "x", "tokens": 3, "seconds": 0.5, "perplexity": 2})"
                 "\n"
                 R"({"timed": true, "article": 2, "text": "none", "tokens": 5, "seconds": 1.5, "perplexity": 4})"
                 "\n");
  const CommandResult result = summarize({"--test_hf", "--eval_ppl", "--hf_python", python, "--data_type", "bf16"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("Hugging Face (total latency: 2.0 sec)"),
                    HasSubstr("Hugging Face (total output tokens: 8)"), HasSubstr("HF beam 0 result\n  rouge1: "),
                    HasSubstr("Per-token perplexity: 3.0"), HasSubstr("\n Output: sample\n")));
  const Json job = readJsonFile(dir_.path() / "job.json");
  EXPECT_EQ(job.at("dtype"), "bfloat16");
  EXPECT_EQ(job.at("model_dir"), model_.string());
  EXPECT_EQ(job.at("output_len"), 100);
  EXPECT_EQ(job.at("end_id"), *loadTextCodec(model_)->eosTokenId());
  EXPECT_EQ(job.at("sampling").at("do_sample"), false);
  EXPECT_THAT(job.at("prompts").dump(), HasSubstr("Two boats didn't. TL;DR:\""));
}

TEST_F(Summarize, APerplexityThatIsNoNumberIsPrintedAsOne) {
  const auto printed = [&](const std::string& value) {
    const std::string python = fakePython(
        R"({"timed": true, "article": 0, "text": "x", "tokens": 3, "seconds": 0.5, "perplexity": )" + value + "}\n");
    return summarize({"--test_hf", "--eval_ppl", "--hf_python", python});
  };
  EXPECT_THAT(printed("\"nan\"").out, HasSubstr("Per-token perplexity: nan\n"));
  EXPECT_THAT(printed("\"inf\"").out, HasSubstr("Per-token perplexity: inf\n"));
  refuses(printed("\"many\""), "'perplexity' is not a number");
}

TEST_F(Summarize, TransformersGetsTheAdaptersThatAreUsed) {
  const std::string python = fakePython(R"({"timed": true, "article": 0, "text": "x", "tokens": 3, "seconds": 0.5})"
                                        "\n");
  const fs::path archive = dir_.path() / "a.nemo";
  std::ofstream(archive) << "x";
  const auto with = [&](const std::string& uid) {
    return summarize(
        {"--test_hf", "--hf_python", python, "--lora_dir", kDemo / "adapters/shout", archive, "--lora_task_uids", uid});
  };
  ASSERT_EQ(with("0").status, 0);
  const Json job = readJsonFile(dir_.path() / "job.json");
  EXPECT_EQ(job.at("lora_dirs"), Json({(kDemo / "adapters/shout").string(), ""}));
  EXPECT_EQ(job.at("lora_task_uids"), Json::array({0}));
  refuses(with("1"), "a.nemo: it has no adapter_config.json, and PEFT reads only");
  EXPECT_EQ(with("-1").status, 0);
}

TEST_F(Summarize, APythonThatCannotRunIsOneLine) {
  refuses(summarize({"--test_hf", "--hf_python", "/nowhere/python3"}), "cannot run /nowhere/python3");
  refuses(summarize({"--test_hf", "--hf_python",
                     fakePython(R"({"error": "ModuleNotFoundError: No module named 'transformers'"})", 1)}),
          "No module named 'transformers'; it needs torch and transformers");
  refuses(summarize({"--test_hf", "--hf_python", fakePython("answers", 0)}), "output of ");
  refuses(summarize({"--test_hf", "--hf_python",
                     fakePython(R"({"timed": true, "article": 7, "text": "", "tokens": 1, "seconds": 1})")}),
          "no article 7");
  const CommandResult died = summarize({"--test_hf", "--hf_python", fakePython("", 3)});
  EXPECT_EQ(died.status, 1);
  EXPECT_THAT(died.errors, HasSubstr("ended with status 3: the last words"));
  refuses(runChorus({"summarize", "--test_hf", "--tokenizer_dir", model_}), "--test_hf needs --hf_model_dir");
}

}  // namespace
}  // namespace chorus::test
