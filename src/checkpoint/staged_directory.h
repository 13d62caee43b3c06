// A directory that is created atomically: complete or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace chorus {

// Files are written into a temporary sibling of `target`, which publish() renames to `target`. Without publish() the
// destructor removes the sibling and `target` stays unchanged.
class StagedDirectory {
 public:
  // Creates the missing parent directories of `target` and the sibling. An existing target must be empty, or
  // replaceable(target) must return true, which means that it is an earlier result. Otherwise throws
  // Error(kInvalidArgument) with `what`, the kind of directory that may be replaced ("a checkpoint"). Throws
  // Error(kExhausted) when the sibling cannot be created.
  StagedDirectory(std::filesystem::path target, std::string_view what,
                  const std::function<bool(const std::filesystem::path&)>& replaceable);
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  // The temporary directory to write files into.
  const std::filesystem::path& path() const { return staging_; }
  // Replaces `target` by the new directory, atomically if the file system supports it. Throws Error(kExhausted).
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path staging_;
};

// Installs handlers for SIGINT, SIGTERM and SIGHUP, except for a signal that is ignored or already handled. A signal
// removes all staging directories and then ends the process. For programs, not for libraries.
void removeStagedOnInterrupt();

}  // namespace chorus
