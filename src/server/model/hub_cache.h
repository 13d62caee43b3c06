// Repositories of a Hugging Face cache: models--ORG--NAME/ with refs/main, snapshots/REVISION/ and blobs/. The files of
// a snapshot are links to ../../blobs/HASH, so they lead out of the snapshot's folder but never out of the
// repository's.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/directory.h"

namespace chorus::server {

// Whether a folder beneath root is named and laid out like one. Nothing is thrown.
bool isHubRepository(const Directory& root, const std::string& name);

// The snapshot that refs/main names, or the only one there is. Links in it are followed within the repository's folder
// (Links::kInside), or anywhere (kFollow). Throws Error: kNotFound when there is none, kInvalidArgument when there are
// several and refs/main names none of them.
std::shared_ptr<const Directory> openHubSnapshot(const Directory& root, const std::string& name, Links links);

// The same of a repository that is open.
std::shared_ptr<const Directory> openHubSnapshot(const Directory& repository);

// The repository that a path is, or lies in as its folder of snapshots or as one of these: where the repository is, and
// what the path is called beneath it (empty for the repository itself). nullopt for every other path.
struct HubPath {
  std::filesystem::path repository;
  std::string beneath;
};
std::optional<HubPath> hubPathOf(const std::filesystem::path& path);

}  // namespace chorus::server
