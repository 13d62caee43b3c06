#include "lora/adapter_files.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "checkpoint/names.h"
#include "lora/nemo_reader.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// The names of all archives in a directory. Empty if the directory may be used but not listed.
std::vector<std::string> archivesIn(const Directory& directory) {
  std::vector<std::string> names;
  try {
    names = directory.names(kMaxAdapterFiles).names;
  } catch (const Error&) {
    return {};
  }
  std::erase_if(names, [&](const std::string& name) {
    return name.starts_with('.') || !name.ends_with(kNemoExtension) || directory.isDirectory(name);
  });
  return names;
}

// The archive to read, or an empty name for PEFT's files. Records the files that the answer depends on.
std::string archiveOf(const AdapterLocation& location, FileReader& files) {
  if (!location.archive.empty()) return location.archive;
  std::string archive = nemoArchiveIn(files.directory());
  if (!archive.empty()) files.exists(kPeftConfigFile);
  return archive;
}

}  // namespace

std::string nemoArchiveIn(const Directory& directory) {
  const std::vector<std::string> archives = archivesIn(directory);
  const bool has_peft = directory.hasName(kPeftConfigFile);
  const std::string path = directory.path().string();
  if (has_peft && !archives.empty()) {
    fail(ErrorCode::kInvalidArgument, "{}: it holds two adapters, {} and {}; keep only one", path, kPeftConfigFile,
         archives[0]);
  }
  if (archives.size() > 1) {
    fail(ErrorCode::kInvalidArgument, "{}: it holds {} adapters, {} and {}{}; keep only one", path, archives.size(),
         archives[0], archives[1], archives.size() > 2 ? " and others" : "");
  }
  if (has_peft) return {};
  if (archives.empty()) {
    fail(ErrorCode::kNotFound, "{}: it holds no adapter: neither {} nor a {} file", path, kPeftConfigFile,
         kNemoExtension);
  }
  return archives[0];
}

std::shared_ptr<const Directory> adapterDirectoryWithin(std::shared_ptr<const Directory> directory) {
  if (holdsAdapter(*directory)) return directory;
  std::vector<std::string> names, adapters;
  try {
    names = directory->directoryNames(kMaxAdapterFiles).names;
  } catch (const Error&) {
    return directory;  // it may be used but not listed
  }
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    if (directory->kindOf(name + "/" + kPeftConfigFile) != Directory::Kind::kNothing) adapters.push_back(name);
  }
  if (adapters.empty()) return directory;
  if (adapters.size() == 1) return directory->openWithin(adapters.front());
  for (const std::string_view prefix : {"checkpoint-", "epoch_", "step_"}) {
    if (!std::ranges::all_of(adapters, [&](const std::string& name) { return name.starts_with(prefix); })) continue;
    const std::string last = highestNumbered(adapters, prefix, "");
    if (!last.empty()) return directory->openWithin(last);
  }
  fail(ErrorCode::kInvalidArgument,
       "{}: it has no {}, and several of its subdirectories have one: {}; name one of them", directory->path().string(),
       kPeftConfigFile, listSome(adapters));
}

bool holdsAdapter(const Directory& directory) {
  return directory.hasName(kPeftConfigFile) || !archivesIn(directory).empty();
}

bool isAdapter(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.extension() == kNemoExtension && fs::exists(path, ignored);
  try {
    return holdsAdapter(*adapterDirectoryWithin(Directory::open(path)));
  } catch (const Error&) {
    return false;
  }
}

bool lacksAdapterFiles(const Directory& directory) {
  if (!archivesIn(directory).empty()) return false;
  return !directory.hasName(kPeftConfigFile) || adapterWeightsFile(directory).empty();
}

AdapterLocation AdapterLocation::of(const fs::path& path) {
  std::error_code ignored;
  const bool is_archive = path.extension() == kNemoExtension && !fs::is_directory(path, ignored);
  if (!is_archive) return {[open = openerOf(path)] { return adapterDirectoryWithin(open()); }, {}};
  return {openerOf(path.has_parent_path() ? path.parent_path() : fs::path(".")), path.filename().string()};
}

AdapterFileLimits AdapterFileLimits::of(const AdapterTarget& target) {
  // An archive may also hold a tokenizer.
  constexpr size_t kOtherMembers = size_t{64} << 20;
  return {largestPeftWeights(target.config, target.table, target.max_rank),
          largestLowRankWeights(target.config, target.table, target.max_rank) + kOtherMembers};
}

AdapterFileLimits AdapterFileLimits::ofAnyModel() { return {availableMemory(), availableMemory()}; }

AdapterContents readAdapterFiles(const AdapterLocation& location, const AdapterFileLimits& limits,
                                 const std::shared_ptr<FileMemory>& memory, BackgroundThrottle* throttle) {
  return readUnchanged(
      location.open,
      [&](FileReader& files) -> AdapterContents {
        const std::string archive = archiveOf(location, files);
        if (archive.empty()) return {readPeftFiles(files, limits.peft_weights)};
        return {readNemoFiles(files, archive, limits.nemo_archive)};
      },
      memory, throttle);
}

uint64_t AdapterHeaders::loadBytes() const {
  const auto* const peft = std::get_if<PeftHeaders>(&files);
  if (peft != nullptr) return checkedAdd(peft->weights_bytes, peft->copiedBytes(), "the adapter");
  return std::get<NemoFiles>(files).load_bytes;
}

std::string AdapterHeaders::digest(BackgroundThrottle* throttle) const {
  const auto* const peft = std::get_if<PeftHeaders>(&files);
  return peft != nullptr ? peft->digest(throttle) : std::string();
}

AdapterContents AdapterHeaders::parse() const {
  const auto* const peft = std::get_if<PeftHeaders>(&files);
  if (peft != nullptr) return {peft->parse()};
  return {std::get<NemoFiles>(files)};
}

AdapterHeaders readAdapterHeaders(const AdapterLocation& location, const AdapterFileLimits& limits,
                                  const std::shared_ptr<FileMemory>& memory, BackgroundThrottle* throttle) {
  return readUnchanged(
      location.open,
      [&](FileReader& files) -> AdapterHeaders {
        const std::string archive = archiveOf(location, files);
        if (archive.empty()) return {readPeftHeaders(files, limits.peft_weights)};
        return {readNemoHeaders(files, archive, limits.nemo_archive)};
      },
      memory, throttle);
}

int64_t newestAdapterChangeNs(const AdapterLocation& location) {
  FileReader files(location.open());
  if (!location.archive.empty()) {
    files.exists(location.archive);
    return files.newestChangeNs();
  }
  files.exists(kPeftConfigFile);
  if (const std::string weights = adapterWeightsFile(files.directory()); !weights.empty()) files.exists(weights);
  for (const std::string& name : archivesIn(files.directory())) files.exists(name);
  return files.newestChangeNs();
}

Adapter readAdapter(const AdapterContents& contents, std::string name, const AdapterTarget& target) {
  const auto* const peft = std::get_if<PeftFiles>(&contents.files);
  if (peft != nullptr) return readPeftAdapter(*peft, std::move(name), target);
  return readNemoAdapter(std::get<NemoFiles>(contents.files), std::move(name), target);
}

Adapter readAdapter(const fs::path& path, std::string name, const AdapterTarget& target) {
  return readAdapter(readAdapterFiles(AdapterLocation::of(path), AdapterFileLimits::of(target)), std::move(name),
                     target);
}

}  // namespace chorus
