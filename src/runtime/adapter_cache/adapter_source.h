// The place from which an adapter's weights are loaded: files (lora/adapter_files.h), or the tensors of a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/error.h"
#include "chorus/tensor.h"
#include "lora/adapter_files.h"
#include "models/prepared_adapter.h"
#include "runtime/adapter_cache/adapter_size.h"

namespace chorus {

// Called with the hash of a directory's content: at registration, and by a loader thread when the content that it found
// is not the known one, before that content is used. An Error that it throws refuses the content.
using OnAdapterContent = std::function<void(const std::string& content_hash)>;

// The hash of the content that the first load found in a directory, of which registration read only the headers.
// Thread-safe.
class LearnedContent {
 public:
  // Empty: not loaded yet.
  std::string hash() const {
    const std::lock_guard lock(mutex_);
    return hash_;
  }
  void set(std::string hash) {
    const std::lock_guard lock(mutex_);
    hash_ = std::move(hash);
  }

 private:
  mutable std::mutex mutex_;
  std::string hash_;
};

// Immutable once made, except for what `learned` points to. Requests that still need to load it keep it alive; a
// registration keeps a directory's source alive.
struct AdapterSource {
  std::filesystem::path directory;  // for error messages; empty: the source is tensors
  std::string name;                 // of the adapter in a directory, in messages
  AdapterLocation location;         // the files are read only through this
  std::optional<executor::Tensor> weights;
  std::optional<executor::Tensor> config;
  std::string content_hash;      // at registration; equal hashes are one adapter; empty if `learned` is set
  int64_t newest_change_ns = 0;  // newestAdapterChangeNs(), from before the files were read
  int64_t bytes = 0;             // AdapterSize::bytes once packed
  int64_t elements = 0;          // AdapterSize::elements
  // If the source is a directory: the part of `bytes` that the packed adapter may not need, because weights whose
  // values registration did not read may equal the base model's. If the source is tensors, `bytes` and `elements` are
  // upper bounds as a whole, because rows may be padded, and this is 0.
  int64_t droppable_bytes = 0;
  // Set if registration read only the headers (executor::AdapterFiles::deferContent).
  std::shared_ptr<LearnedContent> learned;
  // A directory that took long to register, or whose unread weights are large. Heavy loads wait for each other, so that
  // others need not wait for them.
  bool heavy = false;

  OnAdapterContent on_content;    // for a directory; may be null
  std::function<void()> on_gone;  // called by a loader thread that does not find the files; may be null
  // Called by a loader thread that refuses the files before any load of them succeeded (`learned` is empty); may be
  // null.
  std::function<void(const std::string& reason)> on_refused;

  bool reloadable() const { return !directory.empty(); }
  AdapterSize size() const { return {bytes, elements}; }
  // The least size of the packed adapter; size() is the greatest.
  AdapterSize leastSize() const {
    return reloadable() ? AdapterSize{bytes - droppable_bytes, elements} : AdapterSize{};
  }
  bool sizeIsExact() const { return reloadable() && droppable_bytes == 0; }
};

// Thrown by a LoadAdapter whose files were written so recently that they may be incomplete. The loader tries again
// after `wait` and runs other loads meanwhile.
struct AdapterUnsettled {
  std::chrono::nanoseconds wait;
};

// Thrown by a LoadAdapter after it passed the error to AdapterSource::on_refused, whose owner reports it.
struct AdapterRefused : Error {
  explicit AdapterRefused(const Error& error) : Error(error) {}
};

// Reads, checks and packs an adapter. Called on a loader thread; throws Error or AdapterUnsettled.
using LoadAdapter = std::function<std::shared_ptr<const PreparedAdapter>(const AdapterSource& source)>;

// StepRunner::composeAdapters().
using ComposeAdapters = std::function<std::shared_ptr<const PreparedAdapter>(std::span<const WeightedAdapter> terms)>;

}  // namespace chorus
