// Adapters served by name from one directory, NIM's PEFT source: each subdirectory with an adapter_config.json is an
// adapter, and its name is the model's name.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chorus/types.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// A name that may be served: valid UTF-8 without control characters, 1 to 255 bytes, not beginning with a dot, and
// without slashes or backslashes.
bool isServableName(std::string_view name);

class AdapterDirectory {
 public:
  using Register = std::function<void(executor::IdType taskId, const std::filesystem::path& directory)>;

  // Tokenizer and template for requests to the adapter of a directory. Throws Error.
  using LoadText = std::function<std::shared_ptr<const TextCodec>(const std::filesystem::path& directory)>;

  // Throws Error when the directory can't be read. The catalog and what the functions refer to outlive the object.
  AdapterDirectory(std::filesystem::path directory, ModelCatalog& catalog, Register registerAdapter, LoadText loadText);

  // Registers what is new and returns the names. A subdirectory that can't be served is logged in one line, left out,
  // and tried again by a later scan once something in it has changed. Nothing is ever removed. One caller at a time.
  std::vector<std::string> scan();

 private:
  // Throws Error when the subdirectory is not a servable adapter.
  void checkPlace(const std::filesystem::path& subdirectory) const;
  void add(const std::string& name, const std::filesystem::path& subdirectory);

  std::filesystem::path directory_;  // canonical
  ModelCatalog& catalog_;
  Register register_;
  LoadText loadText_;
  executor::IdType nextTaskId_ = 1;
  std::map<std::string, std::string> refused_;  // name -> state of the files when it was refused
};

}  // namespace chorus::server
