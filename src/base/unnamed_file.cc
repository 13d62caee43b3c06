#include "base/unnamed_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void noSpace(std::string_view purpose, std::string_view reason) {
  fail(ErrorCode::kExhausted, "{}: no temporary file: {}; set TMPDIR to a directory with more space", purpose, reason);
}

std::string lastError() { return std::generic_category().message(errno); }
}  // namespace

Descriptor makeUnnamedFile(std::string_view purpose) {
  std::error_code error;
  const fs::path directory = fs::temp_directory_path(error);
  if (error) noSpace(purpose, error.message());
  Descriptor file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  // Some file systems have no files without a name.
  std::string name = (directory / "chorus.XXXXXX").string();
  file = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) noSpace(purpose, lastError());
  ::unlink(name.c_str());
  return file;
}

UnnamedFile::UnnamedFile(uint64_t size, std::string_view purpose) : file_(makeUnnamedFile(purpose)) {
  if (size == 0) return;
  if (size > static_cast<uint64_t>(INT64_MAX) || ::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) {
    noSpace(purpose, lastError());
  }
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file_.get(), 0);
  if (at == MAP_FAILED) noSpace(purpose, lastError());
  data_ = static_cast<const std::byte*>(at);
  size_ = size;
}

UnnamedFile::~UnnamedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void UnnamedFile::write(uint64_t offset, std::span<const std::byte> bytes, std::string_view purpose) {
  assert(offset <= size_ && bytes.size() <= size_ - offset);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) noSpace(purpose, lastError());
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

}  // namespace chorus
