// Engines built from model sources, kept between runs. Layout of the root:
//   KEY/engine/  KEY/manifest.json   one complete entry, moved here by one rename
//   KEY/limits-HASH/                 the same engine with other limits: its own config.json, and links
//   KEY.lock                         flock: held while an entry is checked or built, so that one process builds
//   building-KEY-PID/                an entry that is being built; the next build removes those of dead processes
//   digests.json                     SHA-256 of files (FileDigests)
// An entry is used only while its files have the digests of its manifest; otherwise it is built again.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/build_config.h"
#include "server/model/file_digests.h"

namespace chorus::server {

// The input of an engine build.
struct EngineSource {
  std::filesystem::path model;
  std::function<std::vector<std::filesystem::path>()> files;  // those that the model has now (SourceReader::files)
  std::string weights;                                        // their dtype and quantisation, in words
};

class EngineCache {
 public:
  // Fills engine_directory, which does not exist yet; workDirectory exists and is removed afterwards.
  using Builder =
      std::function<void(const std::filesystem::path& workDirectory, const std::filesystem::path& engine_directory)>;

  // Creates the root directory. Throws Error if it cannot be created.
  explicit EngineCache(std::filesystem::path root);
  ~EngineCache();

  const std::filesystem::path& root() const { return root_; }
  // Whether the cache has an engine that was built from this model, possibly from other weights.
  bool mayHold(const std::filesystem::path& source) const;

  // Returns a hash of everything that the packed weights depend on: the content of the source's files, its words for
  // the weights, and the packing version. Throws Error if a file is missing.
  std::string keyFor(const EngineSource& source);

  // Returns the entry's engine directory. Builds the entry first if it is missing or damaged; waits while another
  // process builds it. A failed build leaves no files; if the disk was full, the Error says what to do. key: the
  // source's (keyFor). Throws Error if the source has another key after the build, because then nobody knows what was
  // built. The two last used entries of a model stay.
  std::filesystem::path ensure(const std::string& key, const EngineSource& source, const Builder& build);

  // Returns a directory with the entry's engine under these limits, whatever limits it was built with. The entry must
  // exist (ensure).
  std::filesystem::path withLimits(const std::string& key, const BuildConfig& limits);

  // Removes an entry that turned out to be unusable.
  void discard(const std::string& key);

 private:
  bool isIntact(const std::filesystem::path& entry);
  void buildEntry(const std::string& key, const EngineSource& source, const Builder& build);
  void prune(const std::string& key, const std::filesystem::path& model);

  std::filesystem::path root_;
  FileDigests digests_;
};

// $XDG_CACHE_HOME/chorus, else $HOME/.cache/chorus. Throws Error when none is set.
std::filesystem::path defaultCacheDirectory();

}  // namespace chorus::server
