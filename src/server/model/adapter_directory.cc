#include "server/model/adapter_directory.h"

#include <utf8proc.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "server/model/file_digests.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

// Names, sizes and times: whether another try could end differently.
std::string stateOf(const fs::path& subdirectory) {
  std::string state;
  std::error_code error;
  for (fs::directory_iterator it(subdirectory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    state += fmt::format("{} {} {}\n", it->path().filename().string(), it->file_size(ignored),
                         it->last_write_time(ignored).time_since_epoch().count());
  }
  return state;
}

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

AdapterDirectory::AdapterDirectory(fs::path directory, ModelCatalog& catalog, Register registerAdapter,
                                   LoadText loadText)
    : catalog_(catalog), register_(std::move(registerAdapter)), loadText_(std::move(loadText)) {
  std::error_code error;
  directory_ = fs::canonical(directory, error);
  if (error || !fs::is_directory(directory_)) {
    fail(ErrorCode::kNotFound, "--lora_dir {}: {}", directory.string(), error ? error.message() : "not a directory");
  }
}

void AdapterDirectory::checkPlace(const fs::path& subdirectory) const {
  const auto confined = [&](const fs::path& path) {
    if (isInside(fs::canonical(path), directory_)) return;
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

void AdapterDirectory::add(const std::string& name, const fs::path& subdirectory) {
  checkPlace(subdirectory);
  if (name == catalog_.base().name) {
    fail(ErrorCode::kInvalidArgument, "{}: its name is the base model's; rename it or set --model_name",
         subdirectory.string());
  }
  ServedModel model;
  model.name = name;
  model.adapterId = nextTaskId_;
  model.fingerprint = "fp_" + sampledFingerprint(subdirectory).substr(0, 12);
  model.created = std::time(nullptr);
  model.text = loadText_(subdirectory);
  register_(nextTaskId_, subdirectory);
  ++nextTaskId_;
  catalog_.addAdapter(std::move(model));
}

std::vector<std::string> AdapterDirectory::scan() {
  std::vector<fs::path> subdirectories;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) || it->is_symlink(ignored)) subdirectories.push_back(it->path());
  }
  if (error) log::warn("{}: cannot read the adapter directory: {}", directory_.string(), error.message());
  std::sort(subdirectories.begin(), subdirectories.end());

  std::vector<std::string> added;
  Progress progress("adapters", subdirectories.size(), Progress::Unit::kItems);
  for (const auto& subdirectory : subdirectories) {
    progress.add(1);
    const std::string name = subdirectory.filename().string();
    const auto known = catalog_.find(name);
    if ((known && known->adapterId) || name.starts_with('.')) continue;
    const std::string state = stateOf(subdirectory);
    if (const auto refused = refused_.find(name); refused != refused_.end() && refused->second == state) continue;
    try {
      if (!isServableName(name)) {
        fail(ErrorCode::kInvalidArgument, "{}: not a name that can be served; rename it", subdirectory.string());
      }
      add(name, subdirectory);
      refused_.erase(name);
      added.push_back(name);
    } catch (const std::exception& e) {
      log::warn("adapter left out: {}", e.what());
      refused_[name] = state;
    }
  }
  return added;
}

}  // namespace chorus::server
