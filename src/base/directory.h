// Directories held by descriptor, with files opened by relative names beneath them. A file that was checked is the file
// that is read, even if another process changes the path in between.
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

// Immutable and thread-safe. The descriptor stays valid when the directory is renamed or removed.
class Directory {
 public:
  // path: trusted, so links in it are followed. links: rule for names beneath the directory. The directory needs read
  // permission only for names() and directoryNames(). Throws Error(kNotFound) when there is no such directory.
  static std::shared_ptr<const Directory> open(const std::filesystem::path& path, Links links = Links::kFollow);

  // The directory `name` beneath this one. This directory's rule applies to links in `name`; `links` is the rule for
  // names beneath the new directory. Throws the Errors of openFile.
  std::shared_ptr<const Directory> openDirectory(const std::string& name, Links links) const;
  // The directory `name` beneath this one, with the same rule for links. With Links::kInside, links in the new
  // directory may lead to anything beneath this one, not only beneath the new one. Throws the Errors of openFile.
  std::shared_ptr<const Directory> openWithin(const std::string& name) const;

  // Returns a view of this directory in which `name` is the only entry.
  std::shared_ptr<const Directory> withOnly(std::string name) const;

  // Opens a regular file for reading. Never blocks on a FIFO. Throws Error:
  //   kNotFound         no such file, or a path component is not a directory
  //   kCorrupt          a FIFO, a device or a directory
  //   kInvalidArgument  a link that the rule refuses
  Descriptor openFile(const std::string& name) const;
  // The whole contents of a file. Throws the Errors of openFile, and kCorrupt when the file exceeds max_bytes.
  std::string readFile(const std::string& name, size_t max_bytes) const;
  // The stamp of the file or directory at `name`, after links; nullopt when there is none. Throws
  // Error(kInvalidArgument) for a refused link, kNotFound when access is denied.
  std::optional<FileStamp> stampOf(const std::string& name) const;
  bool isDirectory(const std::string& name) const;
  // Whether an entry has this name. A dangling or refused link counts.
  bool hasName(const std::string& name) const { return kindOf(name) != Kind::kNothing; }
  // Type of the entry with this name. A link at its end is not followed; this directory's rule applies to links before.
  enum class Kind { kNothing, kFile, kDirectory, kLink, kOther };
  Kind kindOf(const std::string& name) const;

  struct Names {
    std::vector<std::string> names;  // sorted, without "." and ".."
    bool complete = true;            // false: the directory has more entries than the limit
  };
  // Names of at most `most` entries. Throws Error(kNotFound) when the directory can't be read.
  Names names(size_t most) const;
  // Like names(), but only directories and links.
  Names directoryNames(size_t most) const;

  Links links() const { return links_; }
  // The path at the time of opening, for error messages; the directory may have been renamed since.
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path pathOf(const std::string& name) const { return path_ / name; }

 private:
  // The ancestor directory that confines this directory's links if openWithin made it or an ancestor of it. Without
  // `above`, the directory itself confines them.
  struct Bounds {
    std::shared_ptr<const Descriptor> above;
    std::string prefix;  // path from `above` to this directory, ends with a slash
  };
  Directory(Descriptor fd, std::filesystem::path path, Links links, Bounds bounds = {})
      : fd_(std::move(fd)), path_(std::move(path)), links_(links), bounds_(std::move(bounds)) {}
  // openBeneath() with this directory's rule and bounds.
  int openName(const std::string& name, int flags) const;
  Names readNames(size_t most, bool directories_only) const;
  bool hides(const std::string& name) const { return only_ && name != *only_; }
  // Throws an Error with the file's path and the text of the errno value `reason`.
  [[noreturn]] void refuse(const std::string& name, int reason) const;

  Descriptor fd_;
  std::filesystem::path path_;
  Links links_;
  Bounds bounds_;
  std::optional<std::string> only_;  // set by withOnly()
};

// Opens the directory again for each read of its files, because another directory may have taken its path. Thread-safe.
// Throws Error.
using OpenDirectory = std::function<std::shared_ptr<const Directory>()>;
// Returns a function that calls Directory::open(path, Links::kFollow).
OpenDirectory openerOf(std::filesystem::path path);

}  // namespace chorus
