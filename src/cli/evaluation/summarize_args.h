// The flags of `chorus summarize`: those of TensorRT-LLM's summarize.py.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_sampling.h"

namespace chorus {

struct SummarizeArgs {
  bool test_trt_llm = false, test_hf = false;
  std::string eval_task = "summarize";
  std::string engine_dir = "engine_outputs", hf_model_dir, tokenizer_dir, dataset_dir, output_dir;
  int32_t batch_size = 1, max_ite = 20, output_len = 100, max_input_length = 923, min_input_length = 0;
  int32_t num_return_sequences = 1;
  bool no_add_special_tokens = false, use_stemmer = false;
  bool eval_ppl = false, check_accuracy = false, estimate_accuracy_std_dev = false;
  double rouge1_threshold = 15.0, ppl_threshold = 15.0;
  std::string data_type = "fp16", hf_python = "python3";
  bool hf_device_map_auto = false;
  std::vector<std::string> lora_dirs;
  std::vector<int> lora_task_uids;
  std::string lora_ckpt_source = "hf";
  RunSampling sampling;
  std::optional<int> end_id;
  std::vector<int32_t> attention_windows;
  std::optional<int32_t> max_tokens_in_paged_kv_cache;
  std::optional<double> kv_cache_free_gpu_memory_fraction;
  bool kv_cache_enable_block_reuse = false, enable_chunked_context = false;
  int threads = 0;
  std::string isa, backend = "cpu", log_level = "warning";
  std::map<std::string, std::string> further;  // flags of summarizeFlags(), by name

  void addTo(CLI::App& command);
  // Fills in what other flags determine, and throws Error that names the flag whose value is not possible.
  void check();
};

}  // namespace chorus
