#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace chorus {
namespace {

constexpr uint64_t kAlignment = 8;

std::string_view formatName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat64:
      return "F64";
    case DType::kInt8:
      return "I8";
    case DType::kUint8:
      return "U8";
    case DType::kInt16:
      return "I16";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kBool:
      return "BOOL";
    case DType::kFloat8E4M3:
      return "F8_E4M3";
    case DType::kInt4:
      break;
  }
  return "";
}
}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<Declaration>& tensors,
                                     std::map<std::string, std::string> metadata)
    : path_(path), temporary_(path.string() + ".XXXXXX") {
  std::vector<const Declaration*> order;
  for (const Declaration& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const Declaration* a, const Declaration* b) {
    return dtypeSize(a->dtype) > dtypeSize(b->dtype);
  });

  OrderedJson header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t position = 0;
  for (const Declaration* tensor : order) {
    const char* name = tensor->name.c_str();
    const uint64_t size = checkedMul(checkedElementCount(tensor->shape, name), dtypeSize(tensor->dtype), name);
    if (!slots_.emplace(tensor->name, Slot{position, size}).second) {
      fail(ErrorCode::kInvalidArgument, "{}: tensor '{}' is declared twice", path.string(), tensor->name);
    }
    const uint64_t end = checkedAdd(position, size, name);
    header[tensor->name] = {
        {"dtype", formatName(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  data_begin_ = kAlignment + text.size();

  fd_ = ::mkstemp(temporary_.data());
  if (fd_ < 0) fail(ErrorCode::kExhausted, "{}: cannot write: {}", path.string(), std::strerror(errno));
  try {
    ::fchmod(fd_, 0644);
    const auto total = static_cast<off_t>(data_begin_ + position);
    if (::fallocate(fd_, 0, 0, total) != 0 && errno == ENOSPC) {
      fail(ErrorCode::kExhausted, "{}: cannot write {} bytes: {}", path.string(), total, std::strerror(ENOSPC));
    }
    std::byte prefix[kAlignment];
    for (size_t i = 0; i < kAlignment; ++i) prefix[i] = static_cast<std::byte>(text.size() >> (8 * i));
    writeAt(0, prefix);
    writeAt(kAlignment, std::as_bytes(std::span(text)));
  } catch (...) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void SafetensorsWriter::writeAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorCode::kExhausted, "{}: cannot write: {}", path_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void SafetensorsWriter::write(std::string_view name, uint64_t offset, std::span<const std::byte> bytes) {
  uint64_t begin = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto slot = slots_.find(name);
    if (slot == slots_.end() || offset > slot->second.size || bytes.size() > slot->second.size - offset) {
      fail(ErrorCode::kInternal, "{}: write outside tensor '{}'", path_.string(), name);
    }
    slot->second.written += bytes.size();
    begin = data_begin_ + slot->second.begin;
  }
  writeAt(begin + offset, bytes);
}

void SafetensorsWriter::finish() {
  for (const auto& [name, slot] : slots_) {
    if (slot.written != slot.size) {
      fail(ErrorCode::kInternal, "{}: tensor '{}' got {} of its {} bytes", path_.string(), name, slot.written,
           slot.size);
    }
  }
  if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(ErrorCode::kExhausted, "{}: cannot write: {}", path_.string(), std::strerror(errno));
  }
  ::close(fd_);
  fd_ = -1;
}

}  // namespace chorus
