#include "server/model/adapter_directory.h"

#include <utf8proc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/log.h"
#include "base/progress.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

// Names and stamps of the files that an adapter may be read from: whether another try could end differently.
struct DirectoryState {
  std::string text;
  int64_t newest_change_ns = 0;
};

void addState(const fs::path& directory, DirectoryState& state) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    FileStamp stamp;
    try {
      stamp = stampOf(path).value_or(FileStamp{});
    } catch (const Error& e) {  // a circle of links, or what may not be looked at
      state.text += fmt::format("{}\n", e.what());
      continue;
    }
    state.text += fmt::format("{} {} {} {} {} {}\n", path.filename().string(), stamp.device, stamp.inode, stamp.size,
                              stamp.modified_ns, stamp.changed_ns);
    state.newest_change_ns = std::max(state.newest_change_ns, stamp.changed_ns);
  }
}

DirectoryState stateOf(const fs::path& subdirectory) {
  DirectoryState state;
  addState(subdirectory, state);
  addState(subdirectory / "additional_chat_templates", state);
  return state;
}

// Thrown to end a registration of what is there already.
struct Unchanged {};

bool isInside(const fs::path& path, const fs::path& directory) {
  const auto [end, unused] = std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return end == directory.end();
}

}  // namespace

bool isServableName(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.front() == '.') return false;
  size_t at = 0;
  while (at < name.size()) {
    utf8proc_int32_t codepoint = 0;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(name.data() + at),
                                         static_cast<utf8proc_ssize_t>(name.size() - at), &codepoint);
    if (length <= 0 || codepoint < 0x20 || (codepoint >= 0x7f && codepoint < 0xa0)) return false;
    if (codepoint == '/' || codepoint == '\\') return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

// Ends with the first content that the engine tells of; what it tells later was found by a load.
struct AdapterDirectory::Registration {
  std::atomic<bool> done = false;
};

AdapterDirectory::AdapterDirectory(fs::path directory, ModelCatalog& catalog, EngineClient& engine, LoadText loadText)
    : catalog_(catalog), engine_(engine), loadText_(std::move(loadText)) {
  std::error_code error;
  directory_ = fs::canonical(directory, error);
  if (error || !fs::is_directory(directory_)) {
    fail(ErrorCode::kNotFound, "--lora_dir {}: {}", directory.string(), error ? error.message() : "not a directory");
  }
}

void AdapterDirectory::checkPlace(const fs::path& subdirectory) const {
  const auto confined = [&](const fs::path& path) {
    std::error_code error;
    const fs::path leads_to = fs::canonical(path, error);
    if (error) fail(ErrorCode::kNotFound, "{}: {}", path.string(), error.message());
    if (isInside(leads_to, directory_)) return;
    fail(ErrorCode::kInvalidArgument, "{}: a link that leads out of the adapter directory; copy the files there",
         path.string());
  };
  confined(subdirectory);
  if (!fs::is_regular_file(subdirectory / "adapter_config.json")) {
    for (const auto& entry : fs::directory_iterator(subdirectory)) {
      if (entry.path().extension() == ".nemo") {
        fail(ErrorCode::kUnsupported, "{}: NeMo adapters are not supported; use a Hugging Face PEFT directory",
             entry.path().string());
      }
    }
    fail(ErrorCode::kNotFound, "{}: it has no adapter_config.json", subdirectory.string());
  }
  for (const auto& entry : fs::directory_iterator(subdirectory)) confined(entry.path());
  const fs::path templates = subdirectory / "additional_chat_templates";
  if (!fs::is_directory(templates)) return;
  for (const auto& entry : fs::directory_iterator(templates)) confined(entry.path());
}

bool AdapterDirectory::take(const std::string& name, const fs::path& subdirectory) {
  checkPlace(subdirectory);
  if (name == catalog_.base().name) {
    fail(ErrorCode::kInvalidArgument, "{}: its name is the base model's; rename it or set --model_name",
         subdirectory.string());
  }
  const auto served = catalog_.find(name);
  Known& known = known_[name];
  Known now{.state = stateOf(subdirectory).text, .contentHash = "", .text = loadText_(subdirectory)};
  // What one tokenizer has read must not meet weights that go with another: those get an id of their own.
  const bool same_text = served != nullptr && known.text == now.text;
  const executor::IdType id = same_text ? *served->adapterId : nextTaskId_;
  const auto registration = std::make_shared<Registration>();
  const auto onContent = [&, this, name, subdirectory, registration, text = now.text](const std::string& hash) {
    if (registration->done.exchange(true)) return changedAtLoad(name, subdirectory, text);
    if (stateOf(subdirectory).text != now.state) {
      fail(ErrorCode::kConflict, "{}: its files change while they are read", subdirectory.string());
    }
    now.contentHash = hash;
    if (same_text && hash == known.contentHash) throw Unchanged();
  };
  try {
    engine_.registerAdapter(id, subdirectory, onContent);
  } catch (const Unchanged&) {
    known = std::move(now);
    return false;
  }
  if (!same_text) {
    ++nextTaskId_;
    if (served != nullptr) replaced_.push_back(*served->adapterId);
  }
  catalog_.putAdapter({.name = name,
                       .adapterId = id,
                       .fingerprint = "fp_" + now.contentHash.substr(0, 12),
                       .created = std::time(nullptr),
                       .text = now.text});
  known = std::move(now);
  return true;
}

bool AdapterDirectory::look(const fs::path& subdirectory, Found& found) {
  const std::string name = subdirectory.filename().string();
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(name);
  const bool served = known != known_.end() && !known->second.state.empty();
  DirectoryState state = stateOf(subdirectory);
  if (served && known->second.state == state.text) return true;
  if (const auto refused = refused_.find(name); refused != refused_.end() && refused->second == state.text) return true;
  if (served && quietIn(state.newest_change_ns).count() > 0) return false;
  try {
    if (!isServableName(name)) {
      fail(ErrorCode::kInvalidArgument, "{}: not a name that can be served; rename it", subdirectory.string());
    }
    if (take(name, subdirectory)) (served ? found.replaced : found.added).push_back(name);
    refused_.erase(name);
  } catch (const std::exception& e) {
    log::warn("{}: {}", served ? "adapter keeps its old content" : "adapter left out", e.what());
    refused_[name] = std::move(state.text);
  }
  return true;
}

void AdapterDirectory::changedAtLoad(const std::string& name, const fs::path& subdirectory,
                                     const std::shared_ptr<const TextCodec>& text) {
  const std::lock_guard lock(mutex_);
  if (known_[name].state != stateOf(subdirectory).text) take(name, subdirectory);
  if (known_[name].text == text) return;
  fail(ErrorCode::kConflict, "adapter '{}' was replaced, and its tokenizer too; send the request again", name);
}

std::vector<fs::path> AdapterDirectory::subdirectories() const {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().filename().string().starts_with('.')) continue;
    if (it->is_directory(ignored) || it->is_symlink(ignored)) found.push_back(it->path());
  }
  if (error) log::warn("{}: cannot read the adapter directory: {}", directory_.string(), error.message());
  std::sort(found.begin(), found.end());
  return found;
}

AdapterDirectory::Found AdapterDirectory::scan() {
  {
    const std::lock_guard lock(mutex_);
    for (const executor::IdType id : replaced_) engine_.unregisterAdapter(id);
    replaced_.clear();
  }
  std::vector<fs::path> left = subdirectories();
  Found found;
  Progress progress("adapters", left.size(), Progress::Unit::kItems);
  constexpr int kRounds = 3;  // a next scan sees to what is being rewritten for longer
  for (int round = 0; round < kRounds && !left.empty(); ++round) {
    if (round > 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    std::erase_if(left, [&](const fs::path& subdirectory) {
      const bool done = look(subdirectory, found);
      if (done) progress.add(1);
      return done;
    });
  }
  return found;
}

}  // namespace chorus::server
