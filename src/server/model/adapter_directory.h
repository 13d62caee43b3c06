// Adapters served by name from directories, NIM's PEFT source among them: each subdirectory with an adapter_config.json
// is an adapter, and its name is the model's name. The subdirectories belong to tenants that are not trusted:
// everything is opened beneath the roots by descriptor (base/directory.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/work_meter.h"
#include "chorus/types.h"
#include "server/model/adapter_roots.h"
#include "server/model/engine_client.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

struct AdapterDirectoryOptions {
  // kInside: a subdirectory is no link, and links in it stay in it. kFollow: links lead anywhere.
  Links links = Links::kInside;
  // What a scan does about an adapter whose directory is not there any more. Its name is unknown from then on either
  // way. True: its weights are dropped too. False: they stay until others need their room, so that a directory which
  // comes back with the same files is served without loading.
  bool sync = false;
};

// Thread-safe. Its engine's loaders call it: the executor must be gone before it.
class AdapterDirectory {
 public:
  // Tokenizer and template for requests to the adapter of a directory; the same object for the same files. Charges the
  // meter for what it reads. Throws Error.
  using LoadText = std::function<std::shared_ptr<const TextCodec>(const Directory& directory, WorkMeter& meter)>;

  // places: as of AdapterRoots, whose Errors it throws. Catalog, engine and what loadText refers to outlive the object.
  AdapterDirectory(const std::vector<AdapterPlace>& places, ModelCatalog& catalog, EngineClient& engine,
                   LoadText loadText, const AdapterDirectoryOptions& options = {});

  // Beyond these, subdirectories are not looked at and a subdirectory is refused.
  static constexpr size_t kMaxAdapters = size_t{1} << 16;
  static constexpr size_t kMaxFiles = 1024;
  // Adapters that ended and whose weights stay (AdapterDirectoryOptions::sync).
  static constexpr size_t kMaxDormant = 1024;

  struct Found {
    std::vector<std::string> added, replaced, removed;
  };
  // Registers what is new, and what is known by its name and has other content than before, once its files have been
  // left alone for a second: with its new tokenizer and template, for later requests. Of an adapter that was not loaded
  // yet, adapter_config.json and the header of its weights are read; its first load checks the values, and ends it with
  // one line in the log when they can't be served. A subdirectory that can't be
  // served is logged in one line, keeps its old state, if it has one, and is tried again by a later scan once something
  // in it has changed. An adapter whose directory is missing twice, 0.6 s apart, ends (AdapterDirectoryOptions::sync);
  // one whose files a load finds missing ends at once. One caller at a time; stop: whether to end early.
  Found scan(const std::function<bool()>& stop = nullptr);

 private:
  struct Registration;
  // What is known of a name.
  struct Adapter {
    std::mutex mutex;          // of all below; held while the files are read
    std::string state;         // of the files that it was read from; empty when it is not known to the engine
    std::string content_hash;  // empty until it was loaded, or read whole
    std::shared_ptr<Registration> registration;  // the latest
    std::shared_ptr<const TextCodec> text;
    executor::IdType id = 0;
    int64_t created = 0;
    bool listed = false;   // in the catalog
    bool missing = false;  // the last look found no directory
    std::string refused;   // state of the files when they were refused
  };
  struct State;
  class Warnings;

  // Those that are there and those that are served, the latter first.
  std::vector<std::string> namesToLookAt();
  // Forgets names that are neither there nor served.
  void forgetEnded();
  std::shared_ptr<Adapter> adapterOf(const std::string& name);
  State stateOf(const Directory& directory) const;
  bool isGone(const std::string& name, bool with_files) const;
  // Of these the adapter's mutex is held.
  // Serves what is in the subdirectory now. False when that is served already.
  bool take(const std::string& name, const std::shared_ptr<Adapter>& adapter);
  void put(const std::string& name, Adapter& adapter);
  void end(const std::string& name, Adapter& adapter, bool forget);

  // One of a scan. False when it must be looked at again: it is being rewritten, or seems to be gone.
  bool look(const std::string& name, Found& found, Warnings& warnings);
  // A loader found content that is not known: the first of this registration, or another than was registered with this
  // text. Throws Error unless it goes with that text.
  void contentAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter,
                     const std::shared_ptr<Registration>& registration, const std::shared_ptr<const TextCodec>& text,
                     const std::string& hash);
  // The first load of a registration refused its files.
  void refusedAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter,
                     const std::shared_ptr<Registration>& registration, const std::string& reason);
  // A loader found no directory or no files.
  void goneAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter);

  const AdapterRoots roots_;
  ModelCatalog& catalog_;
  EngineClient& engine_;
  LoadText loadText_;
  AdapterDirectoryOptions options_;
  std::mutex mutex_;  // of all below; taken after an adapter's
  executor::IdType nextTaskId_ = 1;
  std::map<std::string, std::shared_ptr<Adapter>> adapters_;
  std::vector<executor::IdType> replaced_;  // requests that began before may still come with them
};

}  // namespace chorus::server
