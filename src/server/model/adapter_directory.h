// Adapters served by name from one directory, NIM's PEFT source: each subdirectory with an adapter_config.json is an
// adapter, and its name is the model's name.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "chorus/types.h"
#include "server/model/engine_client.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// A name that may be served: valid UTF-8 without control characters, 1 to 255 bytes, not beginning with a dot, and
// without slashes or backslashes.
bool isServableName(std::string_view name);

// Thread-safe. Its engine's loaders call it: the executor must be gone before it.
class AdapterDirectory {
 public:
  // Tokenizer and template for requests to the adapter of a directory; the same object for the same files. Throws
  // Error.
  using LoadText = std::function<std::shared_ptr<const TextCodec>(const std::filesystem::path& directory)>;

  // Throws Error when the directory can't be read. Catalog, engine and what loadText refers to outlive the object.
  AdapterDirectory(std::filesystem::path directory, ModelCatalog& catalog, EngineClient& engine, LoadText loadText);

  struct Found {
    std::vector<std::string> added, replaced;
  };
  // Registers what is new, and what is known by its name and has other content than before, once its files have been
  // left alone for a second: with its new tokenizer and template, for later requests. A subdirectory that can't be
  // served is logged in one line, keeps its old state, if it has one, and is tried again by a later scan once something
  // in it has changed. Nothing is ever removed.
  Found scan();

 private:
  // What is served under a name.
  struct Known {
    std::string state;  // of the files that it was read from
    std::string contentHash;
    std::shared_ptr<const TextCodec> text;
  };
  struct Registration;

  // Throws Error when the subdirectory is not a servable adapter.
  void checkPlace(const std::filesystem::path& subdirectory) const;
  std::vector<std::filesystem::path> subdirectories() const;
  // Serves what is in the subdirectory now. False when that is served already.
  bool take(const std::string& name, const std::filesystem::path& subdirectory);
  // One of a scan. False when it must be looked at again: it is being rewritten.
  bool look(const std::filesystem::path& subdirectory, Found& found);
  // A loader found other content than was registered with this text. Throws Error unless it goes with that text.
  void changedAtLoad(const std::string& name, const std::filesystem::path& subdirectory,
                     const std::shared_ptr<const TextCodec>& text);

  std::filesystem::path directory_;  // canonical
  ModelCatalog& catalog_;
  EngineClient& engine_;
  LoadText loadText_;
  std::mutex mutex_;
  executor::IdType nextTaskId_ = 1;
  std::map<std::string, Known> known_;
  std::map<std::string, std::string> refused_;  // name -> state of the files when it was refused
  std::vector<executor::IdType> replaced_;      // requests that began before may still come with them
};

}  // namespace chorus::server
