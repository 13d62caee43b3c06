#include "server/model/hub_cache.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "lora/peft_files.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRepository = "models--";
constexpr const char* kSnapshots = "snapshots";
constexpr const char* kMain = "refs/main";

// Accepts Git's object names, and any other text that can name one folder.
bool isRevision(std::string_view text) {
  return !text.empty() && text.size() <= 255 && text != "." && text != ".." &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return c == '/' || static_cast<unsigned char>(c) < 0x21; });
}

std::string revisionOf(const Directory& repository) {
  if (repository.stampOf(kMain)) {
    std::string main = repository.readFile(kMain, 256);
    while (!main.empty() && (main.back() == '\n' || main.back() == '\r')) main.pop_back();
    if (!isRevision(main)) {
      fail(ErrorCode::kInvalidArgument, "{}: not the name of a revision", repository.pathOf(kMain).string());
    }
    return main;
  }
  const auto snapshots = repository.openDirectory(kSnapshots, Links::kInside);
  const Directory::Names names = snapshots->directoryNames(2);
  if (names.names.empty()) fail(ErrorCode::kNotFound, "{}: contains no snapshot", snapshots->path().string());
  if (names.names.size() > 1) {
    fail(ErrorCode::kInvalidArgument, "{}: several snapshots, and no {} that names one; keep only one",
         snapshots->path().string(), kMain);
  }
  return names.names.front();
}

}  // namespace

bool isHubRepository(const Directory& root, const std::string& name) {
  if (!name.starts_with(kRepository)) return false;
  try {
    const auto repository = root.openDirectory(name, Links::kInside);
    return repository->isDirectory(kSnapshots) && !repository->hasName(kPeftConfigFile);
  } catch (const Error&) {
    return false;
  }
}

std::shared_ptr<const Directory> openHubSnapshot(const Directory& root, const std::string& name, Links links) {
  return openHubSnapshot(*root.openDirectory(name, links));
}

std::shared_ptr<const Directory> openHubSnapshot(const Directory& repository) {
  return repository.openWithin(fmt::format("{}/{}", kSnapshots, revisionOf(repository)));
}

std::optional<HubPath> hubPathOf(const fs::path& path) {
  fs::path repository = path;
  std::string beneath;
  std::error_code ignored;
  // Tests the path itself, its parent, and the parent's parent.
  for (int above = 0; above <= 2; ++above) {
    if (repository.filename().string().starts_with(kRepository)) {
      const bool is_its = beneath.empty()
                              ? fs::is_directory(repository / kSnapshots, ignored)
                              : beneath == kSnapshots || beneath.starts_with(fmt::format("{}/", kSnapshots));
      if (is_its) return HubPath{repository, beneath};
    }
    const std::string name = repository.filename().string();
    beneath = beneath.empty() ? name : fmt::format("{}/{}", name, beneath);
    repository = repository.parent_path();
  }
  return std::nullopt;
}

fs::path hubSnapshotOf(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return path;
  const auto hub = hubPathOf(real);
  const bool is_snapshot = hub && hub->beneath.find('/') != std::string::npos;
  if (!hub || is_snapshot) return path;
  return openHubSnapshot(*Directory::open(hub->repository))->path();
}

std::optional<std::string> hubModelName(const fs::path& path) {
  fs::path full = fs::absolute(path).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  const auto hub = hubPathOf(full);
  if (!hub) return std::nullopt;
  std::string name = hub->repository.filename().string().substr(kRepository.size());
  constexpr std::string_view kSlash = "--";
  if (const size_t at = name.find(kSlash); at != std::string::npos) name.replace(at, kSlash.size(), "/");
  return name;
}

}  // namespace chorus::server
