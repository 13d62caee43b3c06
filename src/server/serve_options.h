// Options of `chorus serve`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/model/adapter_roots.h"

namespace chorus::server {

struct ServeOptions {
  // Either a Hugging Face directory, or an engine with a tokenizer.
  std::string modelDirectory;
  std::string engineDirectory;
  std::string tokenizerDirectory;

  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string modelName;                      // empty: the directory's name
  std::vector<AdapterPlace> loraDirectories;  // as AdapterRoots takes them; empty: no adapters
  int loraRefreshSeconds = 0;                 // 0: only at start
  // What tenants that write to the adapter directories may do.
  std::string loraRefresh = "add";              // or sync: adapters whose directory is removed are dropped
  std::string loraDirLinks = "inside";          // or follow
  bool trustAdapterText = true;                 // tokenizers and templates of adapters
  std::optional<int32_t> adapterTextMemoryMiB;  // default: see loaded_model.cc

  // For the engine that is built from a Hugging Face directory.
  std::string dtype = "auto";
  std::string quantize;              // int8 or int4; empty: none
  std::optional<int32_t> groupSize;  // for `quantize`; default: see served_engine.cc
  std::optional<int32_t> maxSeqLen;
  std::string cacheDirectory;  // empty: defaultCacheDirectory()
  // Limits of that engine, or lower limits for a given engine.
  std::optional<int32_t> maxLoraRank;               // default: 64, or the given engine's
  std::optional<int32_t> maxCpuLoras, maxGpuLoras;  // cache sizes in adapters of rank maxLoraRank
  std::optional<int32_t> maxBatchSize;
  std::optional<int32_t> maxNumTokens;

  int threads = 0;  // 0: all cores that this process may use
  std::string backend = "cpu";
  std::string isa;  // empty: the best that is available
  std::optional<int32_t> kvCacheMaxTokens;
  std::optional<float> kvCacheFreeMemoryFraction;
  int32_t maxQueueSize = 2048;
  int32_t maxChoices = 16;           // limit on the sequences of one request
  std::string kvReuseScope;          // client, adapter or all; empty: all
  double requestTimeoutSeconds = 0;  // 0: none
  double drainTimeoutSeconds = 30;

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
};

}  // namespace chorus::server
