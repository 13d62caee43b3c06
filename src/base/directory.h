// Directories by descriptor, and the files beneath them by relative names: what was checked is what is read, whatever
// somebody else does to the path meanwhile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/beneath.h"
#include "base/descriptor.h"
#include "base/file.h"

namespace chorus {

// Immutable; used by any number of threads. The descriptor keeps the directory although it is renamed or removed.
class Directory {
 public:
  // path is trusted: links on the way to it are followed. links: what names beneath it may do. The directory itself
  // need not be readable, unless its names are asked for. Throws Error(kNotFound) when there is no such directory.
  static std::shared_ptr<const Directory> open(const std::filesystem::path& path, Links links = Links::kFollow);

  // The directory `name` beneath this one, which may be named by links as this one allows; `links` is for names beneath
  // the new one. Throws Error as openFile.
  std::shared_ptr<const Directory> openDirectory(const std::string& name, Links links) const;
  // The directory `name`, whose links may lead to what lies beneath this one, where this one's own links may
  // (Links::kInside); it is named by this one's rule too. Throws Error as openFile.
  std::shared_ptr<const Directory> openWithin(const std::string& name) const;

  // A regular file for reading. Throws Error: kNotFound, also where a component is not a directory; kCorrupt for a
  // FIFO, a device or a directory, which is never waited for; kInvalidArgument for a link that the rule refuses.
  Descriptor openFile(const std::string& name) const;
  // Its whole contents. Throws Error as openFile, and kCorrupt when there are more than max_bytes.
  std::string readFile(const std::string& name, size_t max_bytes) const;
  // The state of what the name leads to; nullopt when nothing is there. Throws Error(kInvalidArgument) for a refused
  // link, kNotFound when it may not be looked at.
  std::optional<FileStamp> stampOf(const std::string& name) const;
  bool isDirectory(const std::string& name) const;
  // Whether something has this name, be it only a link that leads nowhere or may not be followed.
  bool hasName(const std::string& name) const { return kindOf(name) != Kind::kNothing; }
  // What has this name; a link is a link, wherever it leads.
  enum class Kind { kNothing, kFile, kDirectory, kLink, kOther };
  Kind kindOf(const std::string& name) const;

  struct Names {
    std::vector<std::string> names;  // sorted, without "." and ".."
    bool complete = true;            // false: there are more than were asked for
  };
  // Names of at most `most` entries. Throws Error(kNotFound) when the directory can't be read.
  Names names(size_t most) const;
  // The same of directories and links alone.
  Names directoryNames(size_t most) const;

  Links links() const { return links_; }
  // For error lines; the directory may have another path by now.
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path pathOf(const std::string& name) const { return path_ / name; }

 private:
  // What confines the links of a directory when it is another directory above it.
  struct Bounds {
    std::shared_ptr<const Descriptor> above;
    std::string prefix;  // from there to this directory, with a slash at its end
  };
  Directory(Descriptor fd, std::filesystem::path path, Links links, Bounds bounds = {})
      : fd_(std::move(fd)), path_(std::move(path)), links_(links), bounds_(std::move(bounds)) {}
  // openBeneath of a name by this directory's rule.
  int openName(const std::string& name, int flags) const;
  Names readNames(size_t most, bool directories_only) const;
  // Throws Error that names the file and errno's reason.
  [[noreturn]] void refuse(const std::string& name, int reason) const;

  Descriptor fd_;
  std::filesystem::path path_;
  Links links_;
  Bounds bounds_;
};

// Opens a directory anew for each reading of its files: another one may have taken its name meanwhile. Any thread.
// Throws Error.
using OpenDirectory = std::function<std::shared_ptr<const Directory>()>;
// Directory::open with Links::kFollow.
OpenDirectory openerOf(std::filesystem::path path);

}  // namespace chorus
