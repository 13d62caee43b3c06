// A directory that is created atomically: complete or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_lock.h"

namespace chorus {

// Files are written into a temporary sibling of `target`, which publish() renames to `target`. Without publish() the
// destructor removes the sibling and `target` stays unchanged. The sibling is locked; one that a killed process left is
// removed by the next StagedDirectory of the same target.
class StagedDirectory {
 public:
  // Returns the name of an entry which shows that a directory is no earlier result; nullopt: it may be replaced.
  using FindForeign = std::function<std::optional<std::string>(const std::filesystem::path& directory)>;

  // Creates the missing parent directories of `target` and the sibling. An existing target must be empty or an earlier
  // result. Otherwise throws Error(kInvalidArgument) with `what`, the kind of directory that may be replaced ("a
  // checkpoint"), and the foreign entry. Throws Error(kExhausted) when the sibling cannot be created.
  StagedDirectory(std::filesystem::path target, std::string what, FindForeign find_foreign);
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  // The temporary directory to write files into.
  const std::filesystem::path& path() const { return staging_; }
  // Replaces `target` by the new directory, atomically if the file system supports it. Throws Error(kExhausted), and
  // the constructor's Error for files that were written into `target` since then.
  void publish();

 private:
  // Throws the Error of the constructor unless the contents of `target`, which are at `place`, may be replaced.
  void checkReplaceable(const std::filesystem::path& place) const;
  void replace();
  // The beginning of the names of siblings.
  std::string siblingPrefix(std::string_view kind) const;

  std::filesystem::path target_;
  std::string what_;
  FindForeign find_foreign_;
  std::filesystem::path staging_;
  FileLock lock_;      // of the staging directory
  FileLock old_lock_;  // of the directory that is replaced, which becomes a sibling before it is removed
};

// The name of an entry of the directory for which isOwn(entry) is false, the first one in alphabetical order.
std::optional<std::string> firstForeignEntry(
    const std::filesystem::path& directory,
    const std::function<bool(const std::filesystem::directory_entry& entry)>& isOwn);

// Installs handlers for SIGINT, SIGTERM and SIGHUP, except for a signal that is ignored or already handled. A signal
// removes all staging directories and then ends the process. For programs, not for libraries.
void removeStagedOnInterrupt();

}  // namespace chorus
