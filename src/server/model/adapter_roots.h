// Where adapters are looked for: what the values of --lora_dir mean.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/directory.h"

namespace chorus::server {

// A name that may be served: valid UTF-8 without control characters, 1 to 255 bytes, not beginning with a dot, and
// without slashes or backslashes.
bool isServableName(std::string_view name);

// Immutable; used by any number of threads.
class AdapterRoots {
 public:
  // Each place is one of
  //   DIRECTORY         of adapters: each of its subdirectories is one, under the subdirectory's name
  //   DIRECTORY         that is an adapter itself (adapter_config.json, a .nemo file, or TensorRT-LLM's tensors), or
  //   the
  //                     repository of one in a Hugging Face cache (hub_cache.h)
  //   NAME=DIRECTORY    an adapter under another name; a path that exists as it is written is a DIRECTORY
  // links: what links of adapters may do. A given name hides subdirectories of that name, and a subdirectory hides
  // those of later places. Throws Error that names --lora_dir: a place that is no directory, a name that cannot be
  // served, or one that is given twice.
  AdapterRoots(const std::vector<std::string>& places, Links links);

  // Warns of a directory that holds no adapter, and of subdirectories that are hidden.
  void warnOfNames() const;

  struct Names {
    std::vector<std::string> names;  // sorted
    bool complete = true;            // false: a directory of adapters has more than `most` subdirectories
  };
  // Of what may be an adapter now; a directory that cannot be read is warned of.
  Names names(size_t most) const;
  // Opens the adapter's directory anew: another one may have taken its path meanwhile. Throws Error.
  std::shared_ptr<const Directory> open(const std::string& name) const;
  // For error lines. name: one of names().
  std::filesystem::path pathOf(const std::string& name) const;
  // All of them, for log lines.
  std::string text() const;

 private:
  struct Root {
    std::shared_ptr<const Directory> directory;
    std::string name, subdirectory;  // of a place that is one adapter; empty: all subdirectories are
    bool isAdapter() const { return !name.empty(); }
  };
  Root rootOf(const std::string& place) const;
  // Where an adapter of this name is: what has the name from --lora_dir, else the first directory that holds it, else
  // the first directory. And what the adapter's own directory is called there. Throws Error(kNotFound) where there is
  // no directory of adapters.
  std::pair<const Root*, std::string> find(const std::string& name) const;

  Links links_;
  std::vector<Root> roots_;  // at least one
};

}  // namespace chorus::server
