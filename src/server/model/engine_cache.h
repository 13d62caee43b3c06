// Engines built from Hugging Face directories, kept between runs. Layout of the root:
//   KEY/engine/  KEY/manifest.json   one finished entry, renamed into place whole
//   KEY/limits-HASH/                 the same engine under other limits: a config.json of its own, and links
//   KEY.lock                         flock: held while an entry is checked or built, so that one process builds
//   building-KEY-PID/                an entry under way; those of dead processes are removed by the next one
//   digests.json                     remembered SHA-256 of files, see FileDigests
// An entry is used only while its files have the digests of its manifest; otherwise it is built again.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "engine/build_config.h"
#include "server/model/file_digests.h"

namespace chorus::server {

class EngineCache {
 public:
  // Fills engineDirectory, which does not exist yet; workDirectory exists and is removed afterwards.
  using Builder =
      std::function<void(const std::filesystem::path& workDirectory, const std::filesystem::path& engineDirectory)>;

  // Creates the root. Throws Error when it can't be.
  explicit EngineCache(std::filesystem::path root);
  ~EngineCache();

  const std::filesystem::path& root() const { return root_; }
  // Whether an engine of this model directory is kept here; it may be one of other weights.
  bool mayHold(const std::filesystem::path& source) const;

  // Names everything that packed weights depend on: content of config.json and of every weight file, what the weights
  // become (dtype and quantisation, in words), and the packing version. Throws Error when modelDirectory is not one.
  std::string keyFor(const std::filesystem::path& modelDirectory, const std::string& weights);

  // The entry's engine directory, built first when there is none or it is damaged. Waits while another process builds
  // it. A failed build leaves no trace; when space ran out the Error says what to do. source is the model directory,
  // recorded so that older entries of the same model can go: the two last used stay.
  std::filesystem::path ensure(const std::string& key, const std::filesystem::path& source, const Builder& build);

  // The entry's engine under these limits, whichever it was built with. The entry is there (ensure).
  std::filesystem::path withLimits(const std::string& key, const BuildConfig& limits);

  // Removes an entry that turned out to be unusable.
  void discard(const std::string& key);

 private:
  bool isIntact(const std::filesystem::path& entry);
  void buildEntry(const std::string& key, const std::filesystem::path& source, const Builder& build);
  void removeStale(const std::string& ownKey);
  void prune(const std::string& key, const std::filesystem::path& source);

  std::filesystem::path root_;
  FileDigests digests_;
};

// $CHORUS_CACHE_DIR, else $XDG_CACHE_HOME/chorus, else $HOME/.cache/chorus. Throws Error when none is set.
std::filesystem::path defaultCacheDirectory();

}  // namespace chorus::server
