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

// Whether the folder `name` beneath root is named and laid out like such a repository. Does not throw.
bool isHubRepository(const Directory& root, const std::string& name);

// Opens the snapshot that refs/main names; without refs/main, the only snapshot. Its links are followed within the
// repository's folder (Links::kInside), or anywhere (kFollow). Throws Error: kNotFound if there is no snapshot,
// kInvalidArgument if there are several and no refs/main.
std::shared_ptr<const Directory> openHubSnapshot(const Directory& root, const std::string& name, Links links);

// Opens the snapshot of a repository that is already open.
std::shared_ptr<const Directory> openHubSnapshot(const Directory& repository);

// Splits the path of a repository, of its snapshots folder or of one of its snapshots: into the repository's path, and
// the rest beneath it (empty for the repository itself). nullopt for every other path.
struct HubPath {
  std::filesystem::path repository;
  std::string beneath;
};
std::optional<HubPath> hubPathOf(const std::filesystem::path& path);

// The snapshot for which the path of a repository or of its snapshots folder stands; every other path as it is. Links
// are followed. Throws the Errors of openHubSnapshot.
std::filesystem::path hubSnapshotOf(const std::filesystem::path& path);

// ORG/NAME, if hubPathOf() finds the repository models--ORG--NAME in the path as it is written.
std::optional<std::string> hubModelName(const std::filesystem::path& path);

}  // namespace chorus::server
