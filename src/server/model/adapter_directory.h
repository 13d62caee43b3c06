// Adapters served by name from directories, for example NIM's PEFT source: each subdirectory with an
// adapter_config.json or a .nemo archive is an adapter, and its name is the model's name. The subdirectories belong to
// tenants that are not trusted, so every file is opened by descriptor beneath its root (base/directory.h).
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/directory.h"
#include "base/error.h"
#include "base/work_meter.h"
#include "chorus/types.h"
#include "server/model/adapter_roots.h"
#include "server/model/engine_client.h"
#include "server/model/model_catalog.h"
#include "server/model/upload_spool.h"

namespace chorus::server {

// Selects what a scan does besides adding new adapters.
enum class AdapterRefresh {
  kAdd,      // nothing: an adapter keeps its content and its name, as far as memory goes; see AdapterDirectory::scan
  kReplace,  // it replaces adapters whose content has changed
  kSync      // it replaces them, and removes adapters whose directory is missing
};

struct AdapterDirectoryOptions {
  // kInside: a subdirectory must not be a link, and links in it must stay in it. kFollow: links may lead anywhere.
  Links links = Links::kInside;
  AdapterRefresh refresh = AdapterRefresh::kAdd;
  // Directories beneath which load() finds adapters, besides the places.
  std::vector<std::string> allowed_roots = {};
  // The directory and the limit of the uploads (see UploadSpool). An empty directory: uploads are refused.
  std::filesystem::path upload_directory = {};
  uint64_t upload_bytes = 0;
  // Limit on the subdirectories that a scan looks at, and on the names that are known when a request adds another one.
  size_t max_adapters = size_t{1} << 16;
  // Called when a load has left the text of an adapter to AdapterDirectory::readTexts(), which should run soon. Must be
  // quick and must not call the directory; runs on a loader of the engine. May be null.
  std::function<void()> on_text_left = nullptr;
  // An adapter that takes longer has its turn after all others, and then rests: see AdapterDirectory::scan.
  std::chrono::milliseconds quick_time{2000};
};

struct AdapterScanOptions {
  std::function<bool()> stop = nullptr;  // returns true to end the scan early
  // True: new adapters are listed before their tokenizer files are read.
  bool defer_texts = false;
  // True: adapters whose tokenizer files must be read, that have large headers, or that took long the last time, keep
  // their state until AdapterDirectory::readTexts() is called. So none of them holds up a scan.
  bool leave_slow = false;
};

// Thrown when a request would add a name while AdapterDirectoryOptions::max_adapters are known.
struct TooManyAdapters : Error {
  explicit TooManyAdapters(size_t limit)
      : Error(ErrorCode::kExhausted,
              fmt::format("this server keeps at most {} adapters; remove one that is not needed", limit)) {}
};

// Thread-safe. The engine's adapter loaders call this object, so the executor must be destroyed before it.
class AdapterDirectory {
 public:
  // Loads the tokenizer and templates of an adapter's directory: see AdapterTexts::load.
  using LoadText =
      std::function<std::shared_ptr<const TextCodec>(const Directory& directory, WorkMeter& meter, bool parse)>;

  // places: see AdapterRoots, whose Errors are thrown. The catalog, the engine and what loadText refers to must outlive
  // the object.
  AdapterDirectory(const std::vector<AdapterPlace>& places, ModelCatalog& catalog, EngineClient& engine,
                   LoadText loadText, const AdapterDirectoryOptions& options = {});

  // A scan refuses a subdirectory of more than kMaxFiles files.
  static constexpr size_t kMaxFiles = 1024;

  struct Found {
    std::vector<std::string> added, replaced, removed;
  };
  // Registers and removes adapters so that the catalog matches the directories. One caller at a time.
  // - A new adapter is registered.
  // - With kReplace and kSync a known one is registered again when its content has changed and its files have been left
  //   alone for a second; its new tokenizer and templates apply to later requests. With kAdd new content is taken only
  //   by a load, because the old content cannot be read any more once it was evicted.
  // - For an adapter that was never loaded, only its configuration and the header of its weights are read. Its first
  //   load checks the values; if they cannot be served, it removes the adapter and logs one line.
  // - A subdirectory that cannot be served is logged in one line and keeps its old state, if it has one. A later scan
  //   tries it again once something in it has changed. After an error that may pass, such as too little memory, it
  //   also tries the same files again, the later the longer the attempts took.
  // - A subdirectory that took longer than AdapterDirectoryOptions::quick_time is left alone for 16 times as long,
  //   whatever changes in it. Only its removal is noticed.
  // - Without defer_texts and leave_slow, the scan ends with readTexts().
  // - With kSync an adapter whose directory has been missing for half a second is removed. In every mode an adapter
  //   is removed at once if a load does not find its files.
  Found scan(const AdapterScanOptions& how = {});

  // Limit on the time for which a request waits for a text (ModelCatalog::waitForText).
  static constexpr std::chrono::seconds kMaxTextWait{10};
  static constexpr int kQuickInRow = 3;
  // Takes the adapters, or reads the texts, that a scan or a load left, and ends waits of more than kMaxTextWait.
  // - Names that were slow (Turn::slow) have one turn after kQuickInRow turns of others, or when no other is left.
  // - Among equals, one for which requests wait comes first, then the one whose last turn is longest ago.
  // - An adapter whose text cannot be read is logged in one line; it is removed, unless the error may pass.
  // - An adapter whose files have changed is taken as it is now, and `found` has its name.
  // Returns how many are left for another call: those that must rest, those whose error may pass, and all others after
  // stop returned true. Not at the same time as a scan.
  size_t readTexts(Found& found, const std::function<bool()>& stop = nullptr);

  // Throws Error(kInvalidArgument) if no adapter can have this name.
  void checkName(const std::string& name) const;
  enum class Loaded { kAdded, kReplaced, kUnchanged, kExists };
  // Serves the adapter in the directory at `path` (AdapterRoots::locate) under the name, until unload() or until a scan
  // or a load finds the directory missing. If the name is served already: kExists without `replace`, else its content
  // is replaced, and requests that have begun keep the content with which they began. May run at the same time as a
  // scan. Throws Error, and then serves what it served before: kInvalidArgument for a name or path that is not allowed,
  // kNotFound if there is no such directory, TooManyAdapters, and the Errors of reading the adapter.
  // read_values: read and check all values now, not at the first load. meter: is charged for the bytes of the adapter's
  // files and values, and its WorkStopped ends the load; null: no limit.
  Loaded load(const std::string& name, const std::string& path, bool replace, bool read_values = false,
              WorkMeter* meter = nullptr);

  // Limit on the earlier contents of a name that rollBack() can serve again.
  static constexpr size_t kMaxEarlier = 4;
  struct Served {
    Loaded how = Loaded::kAdded;
    std::string content_hash;
  };
  // Like load() with `replace`, but all values are read and checked now.
  Served serve(const std::string& name, const std::string& path, WorkMeter* meter = nullptr);
  // Serves an adapter that a client sent: the text of adapter_config.json and the bytes of a safetensors file. Throws
  // Error like serve(), kUnsupported without AdapterDirectoryOptions::upload_directory, and kExhausted if the uploads
  // that are served or still read leave no room for it. Otherwise uploads that are earlier contents make room: the
  // oldest, as many as suffice.
  Served upload(const std::string& name, std::string_view config, std::string_view weights, WorkMeter* meter = nullptr);
  bool takesUploads() const { return spool_ != nullptr; }
  // Checks an adapter as serve() and upload() would, without serving it. Throws their Errors for a path that is not
  // allowed or an upload that cannot be stored; earlier contents make no room for a check.
  executor::AdapterReport inspect(const std::string& path, WorkMeter* meter = nullptr);
  executor::AdapterReport inspectUpload(std::string_view config, std::string_view weights, WorkMeter* meter = nullptr);
  // Serves an earlier content of the name again: that of the hash, or the latest if the hash is empty. The present
  // content becomes an earlier one. An earlier content is kept as long as its files are unchanged: those of uploads
  // are, those of other directories as long as nobody changes them. Throws Error: kNotFound if the name is not served
  // or has no such earlier content, kConflict if its files have changed, and then it is forgotten.
  Served rollBack(const std::string& name, const std::string& content_hash, WorkMeter* meter = nullptr);
  struct Earlier {
    std::string content_hash;  // empty if it was never loaded
    int64_t created = 0;       // when it began to be served, in seconds since 1970
  };
  struct History {
    bool uploaded = false;         // the present content
    std::vector<Earlier> earlier;  // the latest first
  };
  History historyOf(const std::string& name) const;

  // Stops serving the name, and drops its weights once no request uses them. An adapter of the places stays away until
  // load() serves its name again or its directory is removed. Returns false if the name is not served.
  bool unload(const std::string& name);

 private:
  struct Registration;
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMaxTextTime{20};  // for reading the tokenizer files of one adapter
  // Limits on the work of a scan for one adapter, in bytes that are read, checked or hashed: for headers, and for
  // values that are compared. An adapter that needs more is left until the scan has looked at all others (readTexts()).
  static constexpr uint64_t kQuickHeaderBytes = uint64_t{1} << 20, kQuickContentBytes = uint64_t{64} << 20;
  // Files that could not be served. They are not tried again before retry_at.
  struct Failure {
    std::string state;  // digest of the files; empty: there is no failure
    int count = 0;      // how often these files failed
    Clock::time_point retry_at = Clock::time_point::max();
  };
  // The state of one name.
  struct Adapter {
    std::mutex mutex;          // guards all below; held while the files are read
    std::string state;         // digest of the files that it was registered from; empty: the engine does not have it
    std::string content_hash;  // empty until the weights were loaded or read completely
    std::shared_ptr<Registration> registration;  // the latest one
    std::shared_ptr<const TextCodec> text;       // null: not read yet
    executor::IdType id = 0;
    std::shared_ptr<const void> id_hold;  // ServedModel::id_holds
    int64_t created = 0;
    bool listed = false;                             // it is in the catalog
    std::optional<Clock::time_point> missing_since;  // when a look first found no directory
    Failure failure;                                 // the last one
    bool withheld = false;                           // unload() ended it although the places have it
  };
  // State of the files that an adapter may be read from. While it is the same, another attempt to register them would
  // end the same way.
  struct State {
    std::string digest;
    int64_t newest_change_ns = 0;
    std::optional<Error> refusal;  // set if it cannot be served, whatever the files contain
  };
  class Warnings;
  // The source of an adapter's text codec.
  enum class TextSource {
    kFiles,   // it is read now
    kMemory,  // it is left to readTexts() if it is not in memory
    kLater    // it is left to readTexts() if there are files to read
  };
  struct Taking {
    TextSource text = TextSource::kFiles;
    bool read_values = false;    // read and check all values now, even if nothing of the adapter is cached
    std::string expected_state;  // if not empty: throw Error(kConflict) if the files have another state
    WorkMeter* meter = nullptr;  // see load()
    bool quick = false;          // throw WorkStopped if much must be read (kQuickHeaderBytes); only without a meter
    Clock::duration* waited = nullptr;  // gets the time that registering waited for memory; may be null
  };
  // A content that was served before.
  struct Version {
    AdapterRoots::Location location;
    std::string state, content_hash;  // those of Adapter
    int64_t created = 0;
    uint64_t number = 0;  // in the order in which contents were replaced
  };
  struct Versions {
    bool uploaded = false;
    std::vector<Version> earlier;  // the oldest first
  };

  // Names that are served, followed by all others that are known or in the directories.
  std::vector<std::string> namesToLookAt();
  // Erases names that are neither served nor withheld and have no failure.
  void forgetEnded();
  // Throws TooManyAdapters if the name is new and there is no room for it. Names that a scan found, and those of
  // forgetEnded() that cannot be forgotten, count too. Calls at the same time can exceed the limit by one name each.
  void admitName(const std::string& name);
  struct LockedAdapter {
    std::shared_ptr<Adapter> adapter;
    std::unique_lock<std::mutex> lock;
  };
  // Returns the name's state, which is made if there is none.
  LockedAdapter lockAdapter(const std::string& name);
  State stateOf(const Directory& directory) const;
  bool isGone(const std::string& name, bool with_files) const;
  // The caller of take(), put() and end() holds the adapter's mutex.
  // take() serves the subdirectory's present content. Returns false if that is served already.
  bool take(const std::string& name, const std::shared_ptr<Adapter>& adapter, const Taking& how);
  // Serves the location under the name, or, if that fails, what was served before. A content that is replaced becomes
  // an earlier one. The caller holds the adapter's mutex.
  Loaded replace(const std::string& name, const std::shared_ptr<Adapter>& adapter, AdapterRoots::Location location,
                 const Taking& how);
  // name: as executor::AdapterFiles::name.
  executor::AdapterReport inspect(const AdapterRoots::Location& location, const std::string& name, WorkMeter* meter);
  AdapterRoots::Location store(std::string_view config, std::string_view weights);
  AdapterRoots::Location locate(const std::string& path) const;
  void keepEarlier(const std::string& name, Version version);
  // Forgets the oldest earlier contents that are uploads, as many as an upload of so many bytes needs. Forgets nothing
  // if all of them would not suffice.
  void makeRoom(uint64_t bytes);
  // Gives a served adapter, whose files have not changed, its text. Later changes are noticed by its first load.
  void addText(const std::string& name, Adapter& adapter, TextSource source);
  // Returns null if the text is left to readTexts().
  std::shared_ptr<const TextCodec> readText(const Directory& directory, TextSource source,
                                            Clock::duration limit = kMaxTextTime) const;
  // Time for the text of an adapter that is read for a request with this meter, or, if it is null, for none.
  static Clock::duration textTime(const WorkMeter* meter);
  // Notes that the files with the state `tried` could not be served by an attempt that took so long. Returns true the
  // first time.
  static bool noteFailure(Adapter& adapter, std::string tried, bool may_pass, Clock::duration took);
  void put(const std::string& name, Adapter& adapter);
  // Stops serving an adapter, and drops its weights once no request uses them.
  void end(const std::string& name, Adapter& adapter);
  // Unregisters the ids of replaced_ that no request holds any more.
  void retireReplaced();

  // The share of a name in the time of scan() and readTexts().
  struct Turn {
    bool slow = false;                      // the last turn in which files were read took long
    Clock::time_point last = Clock::now();  // the end of the last turn, or when the name was first met
    Clock::time_point rest_until{};
  };
  // Measures the time of a turn without its waits. waited: the directory's waited_.
  class TurnTime {
   public:
    explicit TurnTime(const Clock::duration& waited) : waited_(waited), waited_before_(waited) {}
    Clock::duration took() const { return Clock::now() - begin_ - (waited_ - waited_before_); }

   private:
    const Clock::duration& waited_;
    Clock::duration waited_before_;
    Clock::time_point begin_ = Clock::now();
  };
  enum class Looked {
    kDone,
    kAgain,  // it must be looked at again: its files are being rewritten, or its directory seems to be missing
    kSlow    // left to readTexts(), because it may take long, much must be read, or it has just taken too long
  };
  struct Looking {
    bool defer_texts = false;  // AdapterScanOptions::defer_texts
    bool leave = false;        // leave it if it must be read anew
    bool quick = false;        // leave it if much must be read: Taking::quick
  };
  // Handles one name of a scan, without reading tokenizer files and at most kQuickHeaderBytes of headers.
  Looked look(const std::string& name, bool defer_texts, Found& found, Warnings& warnings);
  // Handles the names that a scan left and that have no tokenizer files to read, without a limit on their headers.
  void lookAtLeft(const AdapterScanOptions& how, Found& found, Warnings& warnings);
  // Does the same, and reads the name's tokenizer files if necessary.
  Looked lookAndRead(const std::string& name, Found& found, Warnings& warnings);
  // Ends a turn of a name that is or may be slow.
  void endTurn(const std::string& name, Clock::duration took, bool text_was_read);
  void forgetTurns(const std::vector<std::string>& kept);
  // Reads the text of one adapter for which requests wait: one that is quick as far as is known, or with also_slow any
  // that need not rest.
  void readAwaited(bool also_slow, Found& found, Warnings& warnings);
  // The names that readTexts() may handle now.
  using Order = std::set<std::tuple<bool, Clock::time_point, std::string>>;  // (Turn::slow, Turn::last, name)
  Order::const_iterator nextOf(const Order& order) const;
  // Result of reading an adapter's tokenizer and templates (its text) before the adapter's mutex is taken.
  struct ReadAhead {
    std::string state;                      // digest of the files
    std::shared_ptr<const TextCodec> text;  // stays in memory until it is taken
    std::exception_ptr error;               // null: it succeeded
    bool out_of_time = false;
    Clock::duration took{};
  };
  ReadAhead readAhead(const std::string& name, Clock::duration limit) const;
  // Does the same as look(); ahead: the text that was read, or null. Returns kSlow if a text must be read and `ahead`
  // is null, or if anything must be read and how.leave is set.
  Looked lookWith(const ReadAhead* ahead, const std::string& name, const Looking& how, Found& found,
                  Warnings& warnings);
  // Called when a loader reads content of another hash than is known: the first content of `registration`, or content
  // that was written later. Throws Error(kConflict) if the adapter's text is not the registration's any more, or if the
  // adapter was removed. Parses no text, because all other loads would wait meanwhile.
  void contentAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter,
                     const std::shared_ptr<Registration>& registration, const std::string& hash);
  // Called when the first load of a registration refuses its files.
  void refusedAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter,
                     const std::shared_ptr<Registration>& registration, const std::string& reason);
  // Called when a loader finds no directory or no files.
  void goneAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter);

  AdapterRoots roots_;
  ModelCatalog& catalog_;
  EngineClient& engine_;
  LoadText load_text_;
  AdapterDirectoryOptions options_;
  // Used by scan() and readTexts(), which never run at the same time.
  Clock::duration waited_{0};  // how long they waited for memory that other adapters hold
  std::map<std::string, Turn> turns_;
  std::set<std::string> left_;  // names that the last scan left to readTexts()
  int quick_in_row_ = 0;        // turns in readTexts() since one of a slow name
  mutable std::mutex mutex_;    // guards all below; locked after an Adapter's mutex
  executor::IdType next_task_id_ = 1;
  std::map<std::string, std::shared_ptr<Adapter>> adapters_;
  struct ReplacedId {
    executor::IdType id;
    std::weak_ptr<const void> hold;  // expired: no request that was prepared with the id is left
  };
  std::vector<ReplacedId> replaced_;
  std::map<std::string, Versions> versions_;
  uint64_t versions_made_ = 0;
  std::unique_ptr<UploadSpool> spool_;  // set by the constructor only
};

}  // namespace chorus::server
