// The places to look for adapters in, as the values of --lora_dir name them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
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

  std::string text;  // a path or NAME=PATH, see AdapterRoots
  std::string flag;
};

// Thread-safe. The places never change; adapters that are loaded by path are added and removed.
class AdapterRoots {
 public:
  // Each place is one of
  //   DIRECTORY         of adapters: each of its subdirectories is one, under the subdirectory's name
  //   DIRECTORY         that is an adapter itself: it has an adapter's files (adapter_config.json, a .nemo file, or
  //                     TensorRT-LLM's tensors) and no subdirectory that is an adapter; or it is an adapter's
  //                     repository in a Hugging Face cache, or one of its snapshots (hub_cache.h)
  //   FILE.nemo         an adapter in one file, under the file's name without .nemo
  //   NAME=PATH         an adapter under another name, or NAME=FILE.nemo; a path that exists as it is written has no
  //   name
  // links: what links of adapters may do. Links in the places themselves are followed each time with kFollow, else
  // only now. A given name hides subdirectories of that name, and a subdirectory hides
  // those of later places. Throws Error that names the place's flag: a place that is neither a directory nor a .nemo
  // file, a name that cannot be served, or one that is given twice.
  // allowed: the directories in which locate() finds adapters, besides the places that are directories of adapters.
  AdapterRoots(const std::vector<AdapterPlace>& places, Links links, const std::vector<std::string>& allowed = {});

  // Warns of a directory that holds no adapter, and of subdirectories that are hidden.
  void warnOfNames() const;

  struct Names {
    std::vector<std::string> names;  // sorted
    bool complete = true;            // false: a directory of adapters has more than `most` subdirectories
  };
  // Names of everything that may be an adapter now. Warns of a directory that cannot be read.
  Names names(size_t most) const;
  // Opens the adapter's directory each time, because another one may have taken its path. Throws Error.
  std::shared_ptr<const Directory> open(const std::string& name) const;
  // Returns a function that opens what `name` means now, even if another directory is loaded under the name later.
  OpenDirectory opener(const std::string& name) const;

  // A directory beneath an allowed one, or the directory of an upload.
  struct Location {
    std::shared_ptr<const Directory> directory;  // the directory above, held open; null: what the places have
    std::string beneath;                         // path from there
    std::shared_ptr<const void> keep = {};       // an upload's directory stays while this is held; null otherwise
    uint64_t bytes = 0;                          // UploadSpool::Upload::bytes
  };
  // Finds the directory that a client names: a path beneath an allowed directory, or one relative to an allowed
  // directory. Links are not followed unless `links` is kFollow. Throws Error: kInvalidArgument for a path that is no
  // such path or leads elsewhere, kNotFound if there is no such directory.
  Location locate(const std::string& path) const;
  // Makes the location the adapter `name`. It hides the places' adapter of that name; a location without a directory
  // shows that one again. Returns the location that it replaces.
  Location load(const std::string& name, Location location);
  // Undoes load(). Names that were not loaded are ignored.
  void unload(const std::string& name);
  // The path of an adapter's directory, for error lines. name: one of names().
  std::filesystem::path pathOf(const std::string& name) const;
  // The paths of all places, for log lines.
  std::string text() const;

 private:
  struct Root {
    // Held open, so that nobody can replace the directory by renaming what is around it.
    std::shared_ptr<const Directory> directory;
    std::string flag;                  // AdapterPlace::flag
    std::string name;                  // of a place that is one adapter; empty: all subdirectories are
    std::string beneath;               // path from `directory` to the adapter or directory of adapters; empty: itself
    std::string archive;               // of an adapter in one .nemo file: its name in that directory
    std::shared_ptr<const void> keep;  // Location::keep
    uint64_t bytes = 0;                // Location::bytes
    bool is_hub = false;  // `directory` is a repository of a Hugging Face cache; links may lead anywhere in it
    bool isAdapter() const { return !name.empty(); }
    std::filesystem::path path() const {
      const std::filesystem::path of = beneath.empty() ? directory->path() : directory->pathOf(beneath);
      return archive.empty() ? of : of / archive;
    }
  };
  Root rootOf(const AdapterPlace& place) const;
  // Completes the root of a place that is one .nemo file. named: its absolute path as it was given; path: the same
  // without links.
  void setArchive(const std::filesystem::path& named, const std::filesystem::path& path, Root& root) const;
  // A directory that locate() searches, and the ways to write its path.
  struct Allowed {
    std::shared_ptr<const Directory> directory;
    std::vector<std::string> paths;
  };
  void allow(const std::string& path);
  // The adapter that was loaded under the name; nullptr if there is none.
  std::shared_ptr<const Root> loaded(const std::string& name) const;
  // Opens the directory of adapters.
  static std::shared_ptr<const Directory> folderOf(const Root& root);
  // Opens an adapter of this place. name: one of its names.
  // The directory of the name, which may hold the adapter in a subdirectory (adapterDirectoryWithin).
  std::shared_ptr<const Directory> openNamed(const Root& root, const std::string& name) const;
  std::shared_ptr<const Directory> openIn(const Root& root, const std::string& name) const;
  // Returns the place of an adapter: the one with this name of its own, else the first directory of adapters that holds
  // it, else the first directory of adapters. Throws Error(kNotFound) if there is no directory of adapters.
  const Root& find(const std::string& name) const;

  Links links_;
  std::vector<Root> roots_;
  std::vector<Allowed> allowed_;
  mutable std::mutex mutex_;  // guards loaded_
  std::map<std::string, std::shared_ptr<const Root>> loaded_;
};

}  // namespace chorus::server
