#include "engine/engine_file_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/checked.h"

namespace chorus {
namespace {

uint64_t alignUp(uint64_t x) { return (x + kEngineFileAlignment - 1) / kEngineFileAlignment * kEngineFileAlignment; }
}  // namespace

EngineFileWriter::EngineFileWriter(std::filesystem::path path, std::vector<EngineTensor> tensors,
                                   const WeightPacker& packer)
    : path_(std::move(path)), tensors_(std::move(tensors)) {
  // The offsets depend on the size of the index, which depends on the offsets' digits. The file is therefore laid out
  // for an index in which every offset has the largest number of digits.
  for (EngineTensor& tensor : tensors_) {
    tensor.bytes = tensorBytes(tensor, packer);
    tensor.offset = ~uint64_t{0};
  }
  uint64_t offset = alignUp(engineFileHead(tensors_).size());
  for (EngineTensor& tensor : tensors_) {
    tensor.offset = offset;
    offset = alignUp(checkedAdd(offset, tensor.bytes, "engine file"));
  }
  size_ = offset;

  temporary_ = path_.string() + ".XXXXXX";
  fd_ = ::mkstemp(temporary_.data());
  if (fd_ < 0) fail(ErrorCode::kExhausted, "{}: {}", path_.string(), std::strerror(errno));
  ::fchmod(fd_, 0644);
  const int reserve = ::posix_fallocate(fd_, 0, static_cast<off_t>(size_));
  void* map = MAP_FAILED;
  if (reserve == 0) map = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (map == MAP_FAILED) {
    const int reason = reserve != 0 ? reserve : errno;
    ::close(fd_);
    ::unlink(temporary_.c_str());
    fail(ErrorCode::kExhausted, "{}: cannot reserve {} bytes: {}", path_.string(), size_, std::strerror(reason));
  }
  map_ = static_cast<std::byte*>(map);
  const std::string head = engineFileHead(tensors_);
  std::memcpy(map_, head.data(), head.size());
}

EngineFileWriter::~EngineFileWriter() {
  if (map_ != nullptr) ::munmap(map_, size_);
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void EngineFileWriter::commit() {
  if (::msync(map_, size_, MS_SYNC) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(ErrorCode::kExhausted, "{}: cannot write: {}", path_.string(), std::strerror(errno));
  }
  temporary_.clear();
}

}  // namespace chorus
