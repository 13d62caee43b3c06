// Repositories of a Hugging Face cache: models--ORG--NAME/ with refs/main, snapshots/REVISION/ and blobs/. The files of
// a snapshot are links to ../../blobs/HASH, so they lead out of the snapshot's folder but never out of the
// repository's.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/directory.h"

namespace chorus::server {

// Whether a folder beneath root is named and laid out like one. Nothing is thrown.
bool isHubRepository(const Directory& root, const std::string& name);

// The snapshot that refs/main names, or the only one there is. Links in it are followed within the repository's folder
// (Links::kInside), or anywhere (kFollow). Throws Error: kNotFound when there is none, kInvalidArgument when there are
// several and refs/main names none of them.
std::shared_ptr<const Directory> openHubSnapshot(const Directory& root, const std::string& name, Links links);

// Whether a path is the folder of a repository's snapshots.
bool isSnapshotsFolder(const std::filesystem::path& path);
// One of the snapshots in it. Throws Error as Directory::openDirectory.
std::shared_ptr<const Directory> openSnapshot(const std::filesystem::path& snapshots, const std::string& revision,
                                              Links links);

}  // namespace chorus::server
