// Opens files by relative names so that no symbolic link leads out of a directory, even if other processes change the
// directory at the same time.
#pragma once

#include <string>

namespace chorus {

// The symbolic links that are allowed on the path to a file.
enum class Links {
  kFollow,  // links may lead anywhere
  kInside,  // links must have a relative target that lies beneath the directory
  kNone,    // every link is refused
};

// Opens the relative path `name` beneath the directory `dir`, like openat(2). Returns a descriptor with O_CLOEXEC that
// the caller closes, or -1 with errno:
//   EXDEV  the path leaves the directory (by a link, an absolute name or too many `..`)
//   ELOOP  a link that `links` forbids, too many links, or a magic link of /proc
// With Links::kFollow this is plain openat. flags: the flags of openat, without O_CREAT.
int openBeneath(int dir, const std::string& name, int flags, Links links);

// Has the contract of openBeneath(), but walks the path components and resolves links itself. It is for kernels before
// 5.6 and sandboxes that forbid openat2(2). links: kInside or kNone.
int openBeneathByComponents(int dir, const std::string& name, int flags, Links links);

}  // namespace chorus
