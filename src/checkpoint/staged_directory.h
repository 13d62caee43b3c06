// A directory that appears whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace chorus {

// Files are written into a temporary sibling of `target`; publish() puts it in target's place by rename. Without
// publish the destructor removes everything, and target is as it was.
class StagedDirectory {
 public:
  // Creates target's missing parents and the sibling. An existing target must be empty or one that `replaceable`
  // recognises by its file names as an earlier result; otherwise throws Error(kInvalidArgument) that names `what`
  // may be replaced ("a checkpoint"). Throws Error(kExhausted) when nothing can be created.
  StagedDirectory(std::filesystem::path target, std::string_view what,
                  const std::function<bool(const std::filesystem::path&)>& replaceable);
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  // Where to write.
  const std::filesystem::path& path() const { return staging_; }
  // The new directory takes the old one's place in one atomic exchange where the file system can.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path staging_;
};

// From now on SIGINT, SIGTERM and SIGHUP, where they would end the process, remove what is staged before they do. For
// programs, not libraries.
void removeStagedOnInterrupt();

}  // namespace chorus
