#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "formats/npy.h"

namespace chorus {

NpyWriter::NpyWriter(std::filesystem::path path, DType dtype, std::span<const int64_t> shape)
    : path_(std::move(path)), temporary_(path_.string() + ".XXXXXX") {
  const std::string name = path_.string();
  left_ = checkedMul(checkedElementCount(shape, name.c_str()), dtypeSize(dtype), name.c_str());
  const std::string header = npyHeader(dtype, shape);
  fd_ = ::mkstemp(temporary_.data());
  if (fd_ < 0) fail(ErrorCode::kExhausted, "{}: cannot write: {}", name, std::strerror(errno));
  try {
    ::fchmod(fd_, 0644);
    writeAll(header.data(), header.size());
  } catch (...) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

NpyWriter::~NpyWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void NpyWriter::writeAll(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd_, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorCode::kExhausted, "{}: cannot write: {}", path_.string(), std::strerror(errno));
    data += n;
    size -= static_cast<size_t>(n);
  }
}

void NpyWriter::append(std::span<const std::byte> bytes) {
  if (bytes.size() > left_) fail(ErrorCode::kInternal, "{}: more than the array's elements", path_.string());
  writeAll(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  left_ -= bytes.size();
}

void NpyWriter::finish() {
  if (left_ > 0) fail(ErrorCode::kInternal, "{}: {} bytes of the array are missing", path_.string(), left_);
  if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(ErrorCode::kExhausted, "{}: cannot write: {}", path_.string(), std::strerror(errno));
  }
  ::close(fd_);
  fd_ = -1;
}

}  // namespace chorus
