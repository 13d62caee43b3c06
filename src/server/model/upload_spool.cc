#include "server/model/upload_spool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "lora/peft_files.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "chorus-uploads-";
constexpr const char* kWeightsFile = "adapter_model.safetensors";

// The lock of a server's directory; without a descriptor if another server holds it.
Descriptor lockUploads(const fs::path& directory) {
  Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return Descriptor();
  return fd;
}

// Removes the directories of servers that ended without doing so.
void removeLeftOver(const fs::path& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const Descriptor held = lockUploads(entry.path());
    if (!held) continue;
    std::error_code failed;
    fs::remove_all(entry.path(), failed);
  }
}

[[noreturn]] void failToWrite(int reason) {
  fail(ErrorCode::kExhausted, "the uploaded adapter cannot be stored: {}", std::generic_category().message(reason));
}

void writeFile(const Descriptor& directory, const char* name, std::string_view bytes) {
  const Descriptor file(::openat(directory.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) failToWrite(errno);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) failToWrite(errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

// The uploads on disk. Shared with every upload, because an adapter may be read after the spool's end.
struct UploadSpool::Space {
  fs::path path;  // this server's own directory of uploads
  uint64_t max_bytes = 0;
  Descriptor held;  // holds the lock of that directory
  std::shared_ptr<const Directory> directory;
  std::mutex mutex;
  uint64_t used = 0;    // guarded by the mutex
  uint64_t number = 0;  // guarded by the mutex

  ~Space() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
  void giveBack(uint64_t bytes) {
    const std::lock_guard guard(mutex);
    used -= bytes;
  }
};

UploadSpool::UploadSpool(const fs::path& path, uint64_t max_bytes) : space_(std::make_shared<Space>()) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail(ErrorCode::kNotFound, "--lora_upload_dir {}: {}", path.string(), error.message());
  removeLeftOver(path);
  std::string own = (fs::absolute(path) / (std::string(kPrefix) + "XXXXXX")).string();
  if (mkdtemp(own.data()) == nullptr) {
    fail(ErrorCode::kNotFound, "--lora_upload_dir {}: {}", path.string(), std::generic_category().message(errno));
  }
  space_->path = own;
  space_->max_bytes = max_bytes;
  space_->held = lockUploads(own);
  if (!space_->held)
    fail(ErrorCode::kNotFound, "--lora_upload_dir {}: another server removed its directory", path.string());
  space_->directory = Directory::open(own, Links::kNone);
}

UploadSpool::Upload UploadSpool::store(std::string_view config, std::string_view weights) {
  const uint64_t bytes = config.size() + weights.size();
  std::string name;
  {
    const std::lock_guard guard(space_->mutex);
    if (bytes > space_->max_bytes - space_->used) {
      fail(ErrorCode::kExhausted,
           "the uploaded adapters would take {} bytes and may take {}; remove one, or raise --lora_upload_space",
           space_->used + bytes, space_->max_bytes);
    }
    space_->used += bytes;
    name = std::to_string(++space_->number);
  }
  const fs::path path = space_->path / name;
  const std::shared_ptr<const void> keep(space_.get(), [space = space_, path, bytes](const void*) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
    space->giveBack(bytes);
  });
  if (::mkdir(path.c_str(), 0700) != 0) failToWrite(errno);
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) failToWrite(errno);
  writeFile(directory, kPeftConfigFile, config);
  writeFile(directory, kWeightsFile, weights);
  return {space_->directory, std::move(name), keep, bytes};
}

uint64_t UploadSpool::usedBytes() const {
  const std::lock_guard guard(space_->mutex);
  return space_->used;
}

uint64_t UploadSpool::missingFor(uint64_t bytes) const {
  const std::lock_guard guard(space_->mutex);
  const uint64_t free = space_->max_bytes - space_->used;
  return bytes > free ? bytes - free : 0;
}

}  // namespace chorus::server
