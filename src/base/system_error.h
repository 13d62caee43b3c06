// Which kind of Error a failed system call is.
#pragma once

#include <cerrno>

#include "base/error.h"

namespace chorus {

// reason: errno of a call that opens, examines or reads what a path names. kNotFound where the path itself is the
// reason, so that the same call fails again; kExhausted where the system failed, by a lack of memory or descriptors or
// by a broken disk, so that the same call may succeed later.
inline ErrorCode errorCodeOfErrno(int reason) {
  switch (reason) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case EXDEV:
    case ENAMETOOLONG:
    case EINVAL:
    case ENXIO:
      return ErrorCode::kNotFound;
    default:
      return ErrorCode::kExhausted;
  }
}

}  // namespace chorus
