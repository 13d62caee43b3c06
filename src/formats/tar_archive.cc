#include "formats/tar_archive.h"

#include <archive_entry.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/git_lfs.h"
#include "formats/libarchive.h"

namespace chorus {
namespace {

// The input of libarchive's callbacks. An exception must not cross libarchive's C code, so `failure` keeps it until the
// call returns.
struct TarInput {
  const PartialBytes* bytes = nullptr;
  size_t at = 0;
  std::exception_ptr failure;
};

la_ssize_t readTarBlock(archive*, void* data, const void** block) {
  auto& input = *static_cast<TarInput*>(data);
  const size_t size = std::min(kTarBlock - input.at % kTarBlock, input.bytes->size() - input.at);
  try {
    *block = input.bytes->read(input.at, size).data();
  } catch (...) {
    input.failure = std::current_exception();
    return ARCHIVE_FATAL;
  }
  input.at += size;
  return static_cast<la_ssize_t>(size);
}

la_int64_t skipTarBytes(archive*, void* data, la_int64_t request) {
  auto& input = *static_cast<TarInput*>(data);
  const size_t size = std::min(static_cast<size_t>(std::max<la_int64_t>(request, 0)), input.bytes->size() - input.at);
  input.at += size;
  return static_cast<la_int64_t>(size);
}

class TarReader {
 public:
  TarReader(const PartialBytes& bytes, std::string_view source) : source_(source), archive_(archive_read_new()) {
    input_.bytes = &bytes;
    if (archive_ == nullptr) throw std::bad_alloc();
    archive_read_support_format_tar(archive_.get());
    check(archive_read_open2(archive_.get(), &input_, nullptr, readTarBlock, skipTarBytes, nullptr));
  }

  std::vector<TarMember> read() {
    std::vector<TarMember> members;
    std::set<std::string, std::less<>> names;
    archive_entry* entry = nullptr;
    while (check(archive_read_next_header(archive_.get(), &entry)) != ARCHIVE_EOF) {
      if (++headers_ > kMaxTarMembers) corrupt(fmt::format("more than {} members", kMaxTarMembers));
      const char* raw = archive_entry_pathname(entry);
      if (raw == nullptr) fail(ErrorCode::kUnsupported, "{}: a member's name is not plain text", source_);
      TarMember member;
      member.name = nameOf(raw);
      const auto type = archive_entry_filetype(entry);
      const bool is_link = archive_entry_hardlink(entry) != nullptr || type == AE_IFLNK;
      if (type == AE_IFDIR && !is_link) continue;
      if (type != AE_IFREG || is_link) {
        fail(ErrorCode::kUnsupported, "{}: member '{}' is {}; only regular files are read", source_, member.name,
             is_link ? "a link" : "a device or another special file");
      }
      if (archive_entry_sparse_count(entry) > 0) {
        fail(ErrorCode::kUnsupported, "{}: member '{}' is stored as a sparse file; pack it without holes", source_,
             member.name);
      }
      if (member.name.empty()) corrupt("a member has no name");
      if (!names.insert(member.name).second) corrupt(fmt::format("two members have the name '{}'", member.name));
      member.offset = static_cast<uint64_t>(archive_filter_bytes(archive_.get(), 0));
      const la_int64_t size = archive_entry_size(entry);
      const uint64_t total = input_.bytes->size();
      if (size < 0 || member.offset > total || static_cast<uint64_t>(size) > total - member.offset) {
        corrupt(fmt::format("member '{}' is larger than the archive", member.name));
      }
      member.size = static_cast<uint64_t>(size);
      members.push_back(std::move(member));
    }
    return members;
  }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: damaged archive: {}", source_, reason);
  }

  // Returns the result of a call of libarchive unless it is an error. A warning is one too: it concerns a name or a
  // size that could not be read as it is written.
  int check(int result) {
    if (input_.failure) std::rethrow_exception(input_.failure);
    if (result == ARCHIVE_OK || result == ARCHIVE_EOF) return result;
    const char* reason = archive_error_string(archive_.get());
    corrupt(reason != nullptr ? reason : "not a tar archive");
  }

  std::string nameOf(std::string_view raw) const {
    if (raw.starts_with('/')) corrupt(fmt::format("the name '{}' is absolute", raw));
    std::string name;
    while (!raw.empty()) {
      const std::string_view part = raw.substr(0, raw.find('/'));
      raw.remove_prefix(std::min(part.size() + 1, raw.size()));
      if (part.empty() || part == ".") continue;
      if (part == "..")
        corrupt(
            fmt::format("the name of a member leaves the archive with '..': {}{}..", name, name.empty() ? "" : "/"));
      if (!name.empty()) name += '/';
      name += part;
    }
    return name;
  }

  std::string source_;
  ArchiveReader archive_;
  TarInput input_;
  size_t headers_ = 0;
};

}  // namespace

std::vector<TarMember> readTar(const PartialBytes& bytes, std::string_view source) {
  if (bytes.size() == 0) fail(ErrorCode::kCorrupt, "{}: the file is empty", source);
  if (bytes.size() < kGitLfsPointerBytes) refuseGitLfsPointer(bytes.read(0, bytes.size()), source);
  return TarReader(bytes, source).read();
}

const TarMember* findMember(const std::vector<TarMember>& members, std::string_view name) {
  const auto it = std::ranges::find(members, name, &TarMember::name);
  return it == members.end() ? nullptr : &*it;
}

}  // namespace chorus
