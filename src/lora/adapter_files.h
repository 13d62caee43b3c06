// Reads the files of an adapter's directory. It holds either the two files of a PEFT adapter (peft_files.h), or one
// .nemo archive of any name that does not begin with a dot (nemo_files.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/directory.h"
#include "base/file_memory.h"
#include "lora/nemo_files.h"
#include "lora/peft_files.h"
#include "lora/peft_reader.h"

namespace chorus {

// A directory with more files is searched no further for archives.
inline constexpr size_t kMaxAdapterFiles = 1024;

// The adapter that a directory holds: the name of its .nemo archive, or an empty name for a PEFT adapter. Throws Error
// that names the directory: kNotFound if it holds neither, kInvalidArgument if it holds both or two archives.
std::string nemoArchiveIn(const Directory& directory);
// The directory of the adapter that `directory` holds. This is `directory` itself if it has the files of an adapter or
// no subdirectory has an adapter_config.json. Trainers write adapters into subdirectories: PEFT into one with the
// adapter's name, others into checkpoint-N, epoch_N or step_N, of which the highest N counts. Throws
// Error(kInvalidArgument) that lists the subdirectories if several others have adapters, and the Errors of Directory.
std::shared_ptr<const Directory> adapterDirectoryWithin(std::shared_ptr<const Directory> directory);
// Whether the directory has an adapter_config.json or a .nemo archive. The adapter may be incomplete.
bool holdsAdapter(const Directory& directory);
// Whether `path` is an existing .nemo file, or a directory for whose adapterDirectoryWithin() holdsAdapter() is true.
// Throws nothing.
bool isAdapter(const std::filesystem::path& path);
// Whether a file that reading the adapter needs is missing: the archive, or one of the two files of a PEFT adapter.
bool lacksAdapterFiles(const Directory& directory);

// The place from which an adapter is read.
struct AdapterLocation {
  OpenDirectory open;
  std::string archive;  // file name of the .nemo archive to read; empty: the directory must hold one adapter only

  // path: a directory or a .nemo file. Links are followed. `open` opens adapterDirectoryWithin() the directory.
  static AdapterLocation of(const std::filesystem::path& path);
  // Whether the adapter is a .nemo archive. Throws the Errors of `open` and nemoArchiveIn.
  bool isArchive() const { return !archive.empty() || !nemoArchiveIn(*open()).empty(); }
};

struct AdapterContents {
  std::variant<PeftFiles, NemoFiles> files;
};
// Larger files are refused before they are read or unpacked.
struct AdapterFileLimits {
  size_t peft_weights = 0;  // bytes of the weights of a PEFT adapter
  size_t nemo_archive = 0;  // bytes of an archive, packed and unpacked

  // The sizes of the largest adapters of the model.
  static AdapterFileLimits of(const AdapterTarget& target);
  // Limits for adapters whose model is not known: the machine's free memory.
  static AdapterFileLimits ofAnyModel();
};
// Reads all files in one state of the directory (FileReader). Throws Error: those of `open`, of nemoArchiveIn and of
// both formats. memory, throttle: see FileReader.
AdapterContents readAdapterFiles(const AdapterLocation& location, const AdapterFileLimits& limits,
                                 const std::shared_ptr<FileMemory>& memory = nullptr,
                                 BackgroundThrottle* throttle = nullptr);

// An adapter's files without the values of its weights: only the names, types and shapes of the tensors are read.
struct AdapterHeaders {
  std::variant<PeftHeaders, NemoFiles> files;

  // Most bytes of memory that reading and converting the adapter takes.
  uint64_t loadBytes() const;
  // PeftHeaders::digest; empty for an archive.
  std::string digest(BackgroundThrottle* throttle = nullptr) const;
  AdapterContents parse() const;
};
// memory, throttle: see FileReader.
AdapterHeaders readAdapterHeaders(const AdapterLocation& location, const AdapterFileLimits& limits,
                                  const std::shared_ptr<FileMemory>& memory = nullptr,
                                  BackgroundThrottle* throttle = nullptr);

// Time of the latest change of any of the files (FileStamp::changed_ns); 0 when there are none.
int64_t newestAdapterChangeNs(const AdapterLocation& location);

// Checks the adapter against the model (readPeftAdapter, readNemoAdapter). Throws their Errors.
Adapter readAdapter(const AdapterContents& contents, std::string name, const AdapterTarget& target);
// Reads the adapter at a path: a directory or a .nemo file.
Adapter readAdapter(const std::filesystem::path& path, std::string name, const AdapterTarget& target);

}  // namespace chorus
