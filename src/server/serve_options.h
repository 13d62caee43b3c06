// Options of `chorus serve`.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/access/limit_settings.h"
#include "server/model/adapter_roots.h"

namespace chorus::server {

struct ServeOptions {
  // Either a Hugging Face directory, or an engine with a tokenizer.
  std::string model_directory;
  std::string engine_directory;
  std::string tokenizer_directory;

  std::string api_key;        // with all rights; empty: none
  std::string api_keys_file;  // see ApiKeys::parse; empty: none

  std::string tls_cert_file, tls_key_file, tls_client_ca_file;  // see TlsFiles; all empty: HTTP without TLS

  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string model_name;                      // empty: the directory's name
  std::vector<AdapterPlace> lora_directories;  // as AdapterRoots takes them; empty: no adapters
  int lora_refresh_seconds = 0;                // 0: only at start
  // Adapters that were not registered within this time at start are registered while the server answers.
  std::chrono::milliseconds lora_start_time{60'000};
  bool enable_admin = false;                    // routes that load and unload adapters
  std::vector<std::string> lora_allowed_roots;  // directories from which they may load, besides lora_directories
  std::string lora_upload_dir;                  // where uploaded adapters are kept; empty: uploads are refused
  int lora_upload_limit_mib = 256;              // size of one upload
  int lora_upload_space_mib = 4096;             // size of all uploads that are kept
  // These limit what the files in the adapter directories can do, to which tenants may write.
  std::string lora_refresh = "add";                // add, replace or sync: AdapterRefresh
  std::string lora_dir_links = "inside";           // or follow
  bool trust_adapter_text = true;                  // tokenizers and templates of adapters
  std::optional<int32_t> adapter_text_memory_mib;  // default: see loaded_model.cc

  // These apply when the server builds an engine from a Hugging Face directory.
  std::string dtype = "auto";
  std::string quantize;               // int8 or int4; empty: none
  std::optional<int32_t> group_size;  // for `quantize`; default: see served_engine.cc
  std::string activations;            // of a quantised model: inputFormatName; empty: as its checkpoint says, or int16
  std::optional<int32_t> max_seq_len;
  std::string cache_directory;  // empty: defaultCacheDirectory()
  // Limits of that engine, or lower limits for a given engine.
  std::optional<int32_t> max_lora_rank;                 // default: 64, or the given engine's
  std::optional<int32_t> max_cpu_loras, max_gpu_loras;  // cache sizes in adapters of rank max_lora_rank
  std::optional<int32_t> lora_load_memory_mib;          // executor::PeftCacheConfig::getLoadMemory()
  std::string adapter_overload = "reject";              // or wait: for adapters that active ones leave no room for
  std::string lora_storage = "model";                   // or int8: executor::LoraStorage
  std::optional<int32_t> max_batch_size;
  std::optional<int32_t> max_num_tokens;

  int threads = 0;  // 0: all cores that this process may use
  std::string backend = "cpu";
  std::string isa;  // empty: the best that is available
  std::optional<int32_t> kv_cache_max_tokens;
  std::optional<float> kv_cache_free_memory_fraction;
  std::vector<int32_t> attention_windows;  // KvCacheConfig::maxAttentionWindowVec; empty: unset
  int32_t max_queue_size = 2048;
  int32_t max_choices = 16;            // limit on the sequences of one request
  std::string kv_reuse_scope;          // client, adapter or all; empty: all
  double request_timeout_seconds = 0;  // 0: none
  double queue_timeout_seconds = 0;    // 0: none
  std::string fairness = "turns";      // or weighted, weighted_adapters; see FairBy
  double drain_delay_seconds = 0;      // after SIGTERM, in which the server is not ready but still takes requests
  double drain_timeout_seconds = 30;

  // Defaults for each client and each adapter; the file of keys may have others.
  LimitSettings client_limits, adapter_limits;

  // Limits on the resources that clients may use.
  int32_t max_connections = 1024;
  int32_t max_connections_per_client = 256;
  int32_t http_memory_mib = 256;             // bodies, parsed requests and unread answers; a quarter for one client
  int64_t min_read_rate = 65536;             // bytes/s at which clients must read their answers; 0: no limit
  std::vector<std::string> cors_origins;     // "*": all
  std::vector<std::string> trusted_proxies;  // addresses
  int32_t intake_threads = 2;
  double intake_timeout_seconds = 10;
  int64_t intake_work_limit = 4'000'000'000;  // bytes of work
  bool trust_request_templates = false;

  bool page = true;                    // "/" answers with the page for browsers
  int32_t metrics_max_adapters = 256;  // model names with metrics of their own
  bool log_json = false;
  std::optional<bool> access_log;  // default: log_json
};

inline bool servesAdapters(const ServeOptions& options) {
  return !options.lora_directories.empty() || !options.lora_allowed_roots.empty() || !options.lora_upload_dir.empty();
}

}  // namespace chorus::server
