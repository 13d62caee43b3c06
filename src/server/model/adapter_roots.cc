#include "server/model/adapter_roots.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "convert/lora_convert.h"
#include "server/model/hub_cache.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "adapter_config.json";
constexpr size_t kMaxFiles = 1024;
constexpr size_t kMaxSubdirectories = size_t{1} << 16;

// The files of any kind of adapter, also of those that are refused later by a line that says why.
bool holdsAdapter(const Directory& directory) {
  if (directory.hasName(kConfig) || directory.hasName(kLoraConfigFile) || directory.hasName(kLoraWeightsFile)) {
    return true;
  }
  const Directory::Names files = directory.names(kMaxFiles);
  return std::ranges::any_of(files.names, [](const std::string& name) { return name.ends_with(".nemo"); });
}

bool isHidden(const std::string& name) { return name.starts_with('.'); }

struct NamedPath {
  std::optional<std::string> name;
  fs::path path;
};

NamedPath parsePlace(const std::string& place) {
  std::error_code ignored;
  const size_t equals = place.find('=');
  const bool named = equals != std::string::npos && place.find('/') > equals && !fs::exists(place, ignored);
  if (!named) return {std::nullopt, place};
  return {place.substr(0, equals), place.substr(equals + 1)};
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

AdapterRoots::Root AdapterRoots::rootOf(const std::string& place) const {
  NamedPath given = parsePlace(place);
  std::error_code error;
  const fs::path path = fs::canonical(given.path, error);
  if (error || !fs::is_directory(path)) {
    fail(ErrorCode::kNotFound, "--lora_dir {}: {}", place, error ? error.message() : "not a directory");
  }
  // The operator names the path, tenants what is beneath it: no link of theirs takes the place of an adapter.
  const Links of_names = links_ == Links::kFollow ? Links::kFollow : Links::kNone;
  const auto parent = Directory::open(path.parent_path(), of_names);
  const bool is_adapter =
      given.name || isHubRepository(*parent, path.filename().string()) || holdsAdapter(*Directory::open(path, links_));
  if (!is_adapter) return {Directory::open(path, of_names), "", ""};
  std::string name = given.name.value_or(path.filename().string());
  if (!isServableName(name)) {
    fail(ErrorCode::kInvalidArgument, "--lora_dir {}: '{}' is not a name that can be served; give NAME={}", place, name,
         given.path.string());
  }
  return {parent, std::move(name), path.filename().string()};
}

AdapterRoots::AdapterRoots(const std::vector<std::string>& places, Links links) : links_(links) {
  std::set<std::string> names;
  for (const std::string& place : places) {
    Root root = rootOf(place);
    if (root.isAdapter() && !names.insert(root.name).second) {
      fail(ErrorCode::kInvalidArgument,
           "--lora_dir {}: there is another adapter of the name '{}'; give it another, NAME=DIRECTORY", place,
           root.name);
    }
    roots_.push_back(std::move(root));
  }
  if (roots_.empty()) fail(ErrorCode::kInvalidArgument, "--lora_dir names no directory");
}

void AdapterRoots::warnOfNames() const {
  std::map<std::string, const Root*> first;
  for (const Root& root : roots_) {
    if (root.isAdapter()) first.emplace(root.name, &root);
  }
  for (const Root& root : roots_) {
    if (root.isAdapter()) continue;
    const std::string path = root.directory->path().string();
    bool any = false;
    for (const std::string& name : root.directory->directoryNames(kMaxSubdirectories).names) {
      if (isHidden(name)) continue;
      try {
        any = any || open(name)->hasName(kConfig);
      } catch (const Error&) {
        // One that cannot be opened is told of when it is looked at.
      }
      const auto [other, is_first] = first.emplace(name, &root);
      if (!is_first) {
        log::warn("--lora_dir {}: {} is not served from there: {} has the name too", path, name,
                  other->second->directory->path().string());
      }
    }
    if (!any) log::warn("--lora_dir {}: no adapter in it: no subdirectory has an {}", path, kConfig);
  }
}

AdapterRoots::Names AdapterRoots::names(size_t most) const {
  std::set<std::string> all;
  Names found;
  for (const Root& root : roots_) {
    if (root.isAdapter()) {
      if (root.directory->hasName(root.subdirectory)) all.insert(root.name);
      continue;
    }
    try {
      Directory::Names there = root.directory->directoryNames(most);
      found.complete = found.complete && there.complete;
      for (std::string& name : there.names) {
        if (!isHidden(name)) all.insert(std::move(name));
      }
    } catch (const Error& e) {
      log::warn("cannot read the adapter directory: {}", e.what());
    }
  }
  found.names.assign(all.begin(), all.end());
  return found;
}

std::pair<const AdapterRoots::Root*, std::string> AdapterRoots::find(const std::string& name) const {
  for (const Root& root : roots_) {
    if (root.isAdapter() && root.name == name) return {&root, root.subdirectory};
  }
  const Root* first = nullptr;  // whose error says that the name is not there
  for (const Root& root : roots_) {
    if (root.isAdapter()) continue;
    if (first == nullptr) first = &root;
    if (root.directory->hasName(name)) return {&root, name};
  }
  if (first == nullptr) fail(ErrorCode::kNotFound, "--lora_dir has no adapter of the name '{}'", name);
  return {first, name};
}

std::shared_ptr<const Directory> AdapterRoots::open(const std::string& name) const {
  const auto [root, subdirectory] = find(name);
  const Directory& parent = *root->directory;
  if (isSnapshotsFolder(parent.path())) return openSnapshot(parent.path(), subdirectory, links_);
  if (isHubRepository(parent, subdirectory)) return openHubSnapshot(parent, subdirectory, links_);
  return parent.openDirectory(subdirectory, links_);
}

fs::path AdapterRoots::pathOf(const std::string& name) const {
  const auto [root, subdirectory] = find(name);
  return root->directory->pathOf(subdirectory);
}

std::string AdapterRoots::text() const {
  std::string text;
  for (const Root& root : roots_) {
    if (!text.empty()) text += ", ";
    text += (root.isAdapter() ? root.directory->pathOf(root.subdirectory) : root.directory->path()).string();
  }
  return text;
}

}  // namespace chorus::server
