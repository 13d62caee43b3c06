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
#include "lora/adapter_files.h"
#include "server/model/hub_cache.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSubdirectories = size_t{1} << 16;

// Whether the directory has the files of any kind of adapter, also of a kind that is refused later with a reason. Only
// regular files count: in a directory of adapters every other entry may be a tenant's.
bool holdsAdapterFiles(const Directory& directory) {
  const auto is_file = [&](const std::string& name) { return directory.kindOf(name) == Directory::Kind::kFile; };
  if (is_file(kPeftConfigFile) || is_file(kLoraConfigFile) || is_file(kLoraWeightsFile)) return true;
  const Directory::Names files = directory.names(kMaxAdapterFiles);
  return std::ranges::any_of(files.names,
                             [&](const std::string& name) { return name.ends_with(kNemoExtension) && is_file(name); });
}

bool hasAdapterSubdirectory(const Directory& directory) {
  const Directory::Names names = directory.directoryNames(kMaxSubdirectories);
  return std::ranges::any_of(names.names, [&](const std::string& name) {
    try {
      return holdsAdapter(*directory.openDirectory(name, directory.links()));
    } catch (const Error&) {
      return false;
    }
  });
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

// Refuses ORG/NAME=PATH, which parsePlace() takes for a path. place: one that does not exist.
void refuseSlashesInName(const AdapterPlace& place) {
  const size_t equals = place.text.find('=');
  if (equals == std::string::npos) return;
  const std::string path = place.text.substr(equals + 1);
  std::error_code ignored;
  if (place.flag != "--lora_modules" && !fs::exists(path, ignored)) return;
  fail(ErrorCode::kInvalidArgument, "{} {}: an adapter's name cannot contain a slash; use NAME={}", place.flag,
       place.text, path);
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

AdapterRoots::Root AdapterRoots::rootOf(const AdapterPlace& place) const {
  const NamedPath given = parsePlace(place.text);
  std::error_code error;
  const fs::path path = fs::canonical(given.path, error);
  const bool is_archive = !error && fs::is_regular_file(path) && given.path.extension() == kNemoExtension;
  if (error && !given.name) refuseSlashesInName(place);
  if (error || (!is_archive && !fs::is_directory(path))) {
    fail(ErrorCode::kNotFound, "{} {}: {}", place.flag, place.text,
         error ? error.message() : fmt::format("neither a directory nor a {} file", kNemoExtension));
  }
  fs::path named = fs::absolute(given.path).lexically_normal();
  if (named.filename().empty()) named = named.parent_path();
  Root root;
  root.flag = place.flag;
  root.name = given.name.value_or("");
  if (is_archive) {
    setArchive(named, path, root);
    if (!given.name) root.name = named.stem().string();
  } else if (const auto hub = hubPathOf(path)) {
    root.directory = Directory::open(hub->repository, links_);
    root.beneath = hub->beneath;
    root.is_hub = true;
    const bool is_snapshots_folder = !hub->beneath.empty() && hub->beneath.find('/') == std::string::npos;
    if (!given.name && !is_snapshots_folder) root.name = named.filename().string();
  } else {
    // The operator names the path, but tenants name what is beneath it, so no link of theirs may replace an adapter.
    const Links of_names = links_ == Links::kFollow ? Links::kFollow : Links::kNone;
    root.directory = Directory::open(path, of_names);
    const bool holds_files = holdsAdapterFiles(*root.directory);
    const bool is_directory_of_adapters = !given.name && (!holds_files || hasAdapterSubdirectory(*root.directory));
    if (is_directory_of_adapters) return root;
    if (!given.name) root.name = named.filename().string();
    const fs::path& held = links_ == Links::kFollow ? named : path;
    root.directory = Directory::open(held.parent_path(), of_names);
    root.beneath = held.filename().string();
  }
  if ((given.name || root.isAdapter()) && !isServableName(root.name)) {
    fail(ErrorCode::kInvalidArgument, "{} {}: '{}' cannot be a model name; choose one with NAME={}", place.flag,
         place.text, root.name, given.path.string());
  }
  return root;
}

void AdapterRoots::setArchive(const fs::path& named, const fs::path& path, Root& root) const {
  // A Hugging Face cache has links to files whose names are hashes.
  const fs::path parent = fs::canonical(named.parent_path());
  if (const auto hub = hubPathOf(parent)) {
    root.directory = Directory::open(hub->repository, links_);
    root.beneath = hub->beneath;
    root.is_hub = true;
    root.archive = named.filename().string();
    return;
  }
  const fs::path& held = links_ == Links::kFollow ? named : path;
  root.directory = Directory::open(held.parent_path(), links_ == Links::kFollow ? Links::kFollow : Links::kNone);
  root.archive = held.filename().string();
}

AdapterRoots::AdapterRoots(const std::vector<AdapterPlace>& places, Links links,
                           const std::vector<std::string>& allowed)
    : links_(links) {
  std::set<std::string> names;
  for (const AdapterPlace& place : places) {
    Root root = rootOf(place);
    if (root.isAdapter() && !names.insert(root.name).second) {
      fail(ErrorCode::kInvalidArgument, "{} {}: another adapter has the name '{}'; choose another name with NAME=PATH",
           place.flag, place.text, root.name);
    }
    if (!root.isAdapter() && !root.is_hub) allow(parsePlace(place.text).path.string());
    roots_.push_back(std::move(root));
  }
  for (const std::string& path : allowed) allow(path);
}

void AdapterRoots::allow(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error || !fs::is_directory(real)) {
    fail(ErrorCode::kNotFound, "--lora_allowed_roots {}: {}", path, error ? error.message() : "not a directory");
  }
  fs::path written = fs::absolute(path).lexically_normal();
  if (written.filename().empty()) written = written.parent_path();
  const Links of_names = links_ == Links::kFollow ? Links::kFollow : Links::kNone;
  allowed_.push_back({Directory::open(real, of_names), {real.string(), written.string()}});
}

AdapterRoots::Location AdapterRoots::locate(const std::string& path) const {
  constexpr size_t kLongest = 4096;
  const auto refuse = [](std::string_view why) { fail(ErrorCode::kInvalidArgument, "the adapter's path {}", why); };
  if (path.empty() || path.size() > kLongest || path.find('\0') != std::string::npos) {
    refuse("must have 1 to 4096 bytes, none of them zero");
  }
  for (const fs::path& part : fs::path(path)) {
    if (part == "..") refuse("must not contain '..'");
  }
  std::string normal = fs::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  bool is_beneath = false;
  for (const Allowed& allowed : allowed_) {
    std::string beneath = normal;
    if (normal.starts_with('/')) {
      const auto base = std::ranges::find_if(allowed.paths, [&](const std::string& text) {
        return normal.size() > text.size() && normal.starts_with(text) &&
               (text.ends_with('/') || normal[text.size()] == '/');
      });
      if (base == allowed.paths.end()) continue;
      beneath = normal.substr(base->size() + (base->ends_with('/') ? 0 : 1));
    }
    if (beneath.empty() || beneath == ".") continue;
    is_beneath = true;
    try {
      allowed.directory->openDirectory(beneath, links_);
      return {allowed.directory, std::move(beneath), nullptr};
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound) refuse("must not lead through links");
    }
  }
  if (!is_beneath) refuse("is not beneath a directory that the operator allows (--lora_dir, --lora_allowed_roots)");
  fail(ErrorCode::kNotFound, "there is no such directory");
}

std::shared_ptr<const AdapterRoots::Root> AdapterRoots::loaded(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(name);
  return found == loaded_.end() ? nullptr : found->second;
}

AdapterRoots::Location AdapterRoots::load(const std::string& name, Location location) {
  std::shared_ptr<const Root> made;
  if (location.directory != nullptr) {
    Root root;
    root.directory = std::move(location.directory);
    root.flag = "--lora_allowed_roots";
    root.name = name;
    root.beneath = std::move(location.beneath);
    root.keep = std::move(location.keep);
    root.bytes = location.bytes;
    made = std::make_shared<const Root>(std::move(root));
  }
  const std::lock_guard lock(mutex_);
  auto& entry = loaded_[name];
  std::swap(entry, made);
  if (entry == nullptr) loaded_.erase(name);
  if (made == nullptr) return {};
  return {made->directory, made->beneath, made->keep, made->bytes};
}

void AdapterRoots::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  loaded_.erase(name);
}

void AdapterRoots::warnOfNames() const {
  std::map<std::string, const Root*> first;
  for (const Root& root : roots_) {
    if (root.isAdapter()) first.emplace(root.name, &root);
  }
  for (const Root& root : roots_) {
    if (root.isAdapter()) continue;
    const std::string path = root.path().string();
    const auto folder = folderOf(root);
    bool any = false;
    for (const std::string& name : folder->directoryNames(kMaxSubdirectories).names) {
      if (isHidden(name)) continue;
      try {
        any = any || holdsAdapter(*openIn(root, name));
      } catch (const Error&) {
        // An adapter that cannot be opened is reported when it is scanned.
      }
      const auto [other, is_first] = first.emplace(name, &root);
      if (!is_first) {
        log::warn("{} {}: subdirectory {} is not served, because {} has the same name", root.flag, path, name,
                  other->second->path().string());
      }
    }
    if (!any)
      log::warn("{} {}: no adapter found: no subdirectory has an {} or a {} file", root.flag, path, kPeftConfigFile,
                kNemoExtension);
    if (any && holdsAdapterFiles(*folder)) {
      log::warn(
          "{} {}: has adapter files itself and in subdirectories; only the subdirectories are served; NAME={} serves "
          "its own files",
          root.flag, path, path);
    }
  }
}

std::shared_ptr<const Directory> AdapterRoots::folderOf(const Root& root) {
  return root.beneath.empty() ? root.directory : root.directory->openWithin(root.beneath);
}

AdapterRoots::Names AdapterRoots::names(size_t most) const {
  std::set<std::string> all;
  Names found;
  for (const Root& root : roots_) {
    if (root.isAdapter()) {
      if (root.beneath.empty() || root.directory->hasName(root.beneath)) all.insert(root.name);
      continue;
    }
    try {
      Directory::Names there = folderOf(root)->directoryNames(most);
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

const AdapterRoots::Root& AdapterRoots::find(const std::string& name) const {
  for (const Root& root : roots_) {
    if (root.isAdapter() && root.name == name) return root;
  }
  const Root* first = nullptr;  // if no place has the name, opening it here throws the Error that says so
  for (const Root& root : roots_) {
    if (root.isAdapter()) continue;
    if (first == nullptr) first = &root;
    const Directory::Kind kind =
        root.directory->kindOf(root.beneath.empty() ? name : fmt::format("{}/{}", root.beneath, name));
    if (kind == Directory::Kind::kDirectory || kind == Directory::Kind::kLink) return root;
  }
  if (first == nullptr) fail(ErrorCode::kNotFound, "--lora_dir has no adapter of the name '{}'", name);
  return *first;
}

std::shared_ptr<const Directory> AdapterRoots::openIn(const Root& root, const std::string& name) const {
  return adapterDirectoryWithin(openNamed(root, name));
}

std::shared_ptr<const Directory> AdapterRoots::openNamed(const Root& root, const std::string& name) const {
  const Directory& directory = *root.directory;
  if (!root.archive.empty()) {
    const auto folder = root.beneath.empty() ? root.directory : directory.openWithin(root.beneath);
    if (!folder->hasName(root.archive)) {
      fail(ErrorCode::kNotFound, "{}: No such file or directory", root.path().string());
    }
    return folder->withOnly(root.archive);
  }
  if (root.is_hub) {
    if (!root.isAdapter()) return directory.openWithin(fmt::format("{}/{}", root.beneath, name));
    return root.beneath.empty() ? openHubSnapshot(directory) : directory.openWithin(root.beneath);
  }
  if (root.isAdapter()) return directory.openDirectory(root.beneath, links_);
  return isHubRepository(directory, name) ? openHubSnapshot(directory, name, links_)
                                          : directory.openDirectory(name, links_);
}

std::shared_ptr<const Directory> AdapterRoots::open(const std::string& name) const {
  const auto root = loaded(name);
  return openIn(root != nullptr ? *root : find(name), name);
}

OpenDirectory AdapterRoots::opener(const std::string& name) const {
  return [this, name, root = loaded(name)] { return openIn(root != nullptr ? *root : find(name), name); };
}

fs::path AdapterRoots::pathOf(const std::string& name) const {
  const auto from_path = loaded(name);
  const Root& root = from_path != nullptr ? *from_path : find(name);
  return root.isAdapter() ? root.path() : root.path() / name;
}

std::string AdapterRoots::text() const {
  std::string text;
  for (const Root& root : roots_) {
    if (!text.empty()) text += ", ";
    text += root.path().string();
  }
  return text;
}

}  // namespace chorus::server
