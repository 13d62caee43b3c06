// What `chorus serve` was asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace chorus::server {

struct ServeOptions {
  // Either a Hugging Face directory, or an engine with a tokenizer.
  std::string modelDirectory;
  std::string engineDirectory;
  std::string tokenizerDirectory;

  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string modelName;       // empty: the directory's name
  std::string loraDirectory;   // empty: no adapters
  int loraRefreshSeconds = 0;  // 0: only at start

  // Of the engine that is built from a Hugging Face directory.
  std::string dtype = "auto";
  std::string quantize;              // int8 or int4; empty: not
  std::optional<int32_t> groupSize;  // of quantize; default: see served_engine.cc
  std::optional<int32_t> maxSeqLen;
  int32_t maxLoraRank = 64;
  std::optional<int32_t> maxCpuLoras, maxGpuLoras;  // of the largest rank
  std::string cacheDirectory;                       // empty: defaultCacheDirectory()
  // Of that engine, or lower limits for a given one.
  std::optional<int32_t> maxBatchSize;
  std::optional<int32_t> maxNumTokens;

  int threads = 0;  // 0: as many as the machine lends
  std::string backend = "cpu";
  std::string isa;  // empty: the best there is
  std::optional<int32_t> kvCacheMaxTokens;
  std::optional<float> kvCacheFreeMemoryFraction;
  int32_t maxQueueSize = 1024;
  double requestTimeoutSeconds = 0;  // 0: none
  double drainTimeoutSeconds = 30;
};

}  // namespace chorus::server
