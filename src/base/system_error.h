// Maps a failed system call to an error code.
#pragma once

#include <cerrno>

#include "base/error.h"

namespace chorus {

// reason: errno of a call that opens, examines or reads a path. Returns
//   kNotFound   when the path itself causes the failure, so that the same call would fail again
//   kExhausted  when the system fails (no memory or descriptors, a broken disk), so that a later call may succeed
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
