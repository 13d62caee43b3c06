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

// A place to look for adapters in, and the flag that named it, for error lines.
struct AdapterPlace {
  AdapterPlace(std::string place, std::string_view named_by = "--lora_dir") : text(std::move(place)), flag(named_by) {}
  AdapterPlace(const char* place) : AdapterPlace(std::string(place)) {}

  std::string text;  // DIRECTORY or NAME=DIRECTORY, see AdapterRoots
  std::string flag;
};

// Immutable; used by any number of threads.
class AdapterRoots {
 public:
  // Each place is one of
  //   DIRECTORY         of adapters: each of its subdirectories is one, under the subdirectory's name
  //   DIRECTORY         that is an adapter itself (adapter_config.json, a .nemo file, or TensorRT-LLM's tensors) and
  //   has
  //                     no subdirectory that is one; or an adapter's repository, or one of its snapshots, in a Hugging
  //                     Face cache (hub_cache.h)
  //   NAME=DIRECTORY    an adapter under another name; a path that exists as it is written is a DIRECTORY
  // links: what links of adapters may do; with kFollow links in the places themselves are followed anew each time, else
  // only now. A given name hides subdirectories of that name, and a subdirectory hides
  // those of later places. Throws Error that names the place's flag: a place that is no directory, a name that cannot
  // be served, or one that is given twice.
  AdapterRoots(const std::vector<AdapterPlace>& places, Links links);

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
    // Held open, so that nobody who may rename what is around it can put something else there.
    std::shared_ptr<const Directory> directory;
    std::string flag;     // AdapterPlace::flag
    std::string name;     // of a place that is one adapter; empty: all subdirectories are
    std::string beneath;  // the adapter, or the directory of adapters, from `directory` on; empty: itself
    bool is_hub = false;  // `directory` is a repository of a Hugging Face cache, within which links lead
    bool isAdapter() const { return !name.empty(); }
    std::filesystem::path path() const { return beneath.empty() ? directory->path() : directory->pathOf(beneath); }
  };
  Root rootOf(const AdapterPlace& place) const;
  // Opens the directory of adapters.
  static std::shared_ptr<const Directory> folderOf(const Root& root);
  // Opens an adapter of this place. name: one of its names.
  std::shared_ptr<const Directory> openIn(const Root& root, const std::string& name) const;
  // The place of an adapter: what has the name from --lora_dir, else the first directory that holds it, else the first
  // directory. Throws Error(kNotFound) where there is no directory of adapters.
  const Root& find(const std::string& name) const;

  Links links_;
  std::vector<Root> roots_;  // at least one
};

}  // namespace chorus::server
