// Opens files by relative names so that no link leads out of a directory, whatever others do to the directory
// meanwhile.
#pragma once

#include <string>

namespace chorus {

// What the links on the way to a file may do.
enum class Links {
  kFollow,  // lead anywhere
  kInside,  // lead to what lies beneath the directory, by a relative target
  kNone,    // nothing: a link is refused
};

// openat(2) of `name`, which is relative, beneath the directory `dir`. Returns a descriptor with O_CLOEXEC, which the
// caller closes, or -1 with errno: EXDEV for a way out of the directory (a link, an absolute name or too many `..`),
// ELOOP for a link where there may be none, too many links, or a magic link of /proc. With Links::kFollow it is openat
// as it is. flags: as of openat, without O_CREAT.
int openBeneath(int dir, const std::string& name, int flags, Links links);

// The same without openat2(2), for kernels before 5.6 and sandboxes that forbid it: walks the components and resolves
// links itself. links: kInside or kNone.
int openBeneathByComponents(int dir, const std::string& name, int flags, Links links);

}  // namespace chorus
