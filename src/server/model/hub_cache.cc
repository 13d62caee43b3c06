#include "server/model/hub_cache.h"

#include <algorithm>

#include "base/error.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRepository = "models--";
constexpr const char* kSnapshots = "snapshots";
constexpr const char* kMain = "refs/main";

// Git's object names and whatever else may be one folder's name.
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
  if (names.names.empty()) fail(ErrorCode::kNotFound, "{}: no snapshot is there", snapshots->path().string());
  if (names.names.size() > 1) {
    fail(ErrorCode::kInvalidArgument, "{}: several snapshots, and no {} that names one; remove the others",
         snapshots->path().string(), kMain);
  }
  return names.names.front();
}

}  // namespace

bool isHubRepository(const Directory& root, const std::string& name) {
  if (!name.starts_with(kRepository)) return false;
  try {
    const auto repository = root.openDirectory(name, Links::kInside);
    return repository->isDirectory(kSnapshots) && !repository->hasName("adapter_config.json");
  } catch (const Error&) {
    return false;
  }
}

std::shared_ptr<const Directory> openHubSnapshot(const Directory& root, const std::string& name, Links links) {
  const auto repository = root.openDirectory(name, links);
  return repository->openWithin(fmt::format("{}/{}", kSnapshots, revisionOf(*repository)));
}

bool isSnapshotsFolder(const fs::path& path) {
  return path.filename() == kSnapshots && path.parent_path().filename().string().starts_with(kRepository);
}

std::shared_ptr<const Directory> openSnapshot(const fs::path& snapshots, const std::string& revision, Links links) {
  return Directory::open(snapshots.parent_path(), links)->openWithin(fmt::format("{}/{}", kSnapshots, revision));
}

}  // namespace chorus::server
