// One function for each kind of thing that `chorus inspect` recognises. Each adds its facts to the inspection as it
// finds them, and throws the Error with which convert, build, run or serve would refuse the thing.
#pragma once

#include <filesystem>
#include <string>

#include "cli/inspection.h"

namespace chorus {

// A model of any source (convert/sources/sources.h): a directory or a file.
void inspectModel(const std::filesystem::path& path, Inspection& found);
void inspectCheckpoint(const std::filesystem::path& dir, Inspection& found);
void inspectEngine(const std::filesystem::path& dir, Inspection& found);
// The base model with which `chorus serve` would run an adapter.
struct AdapterBase {
  std::filesystem::path path;  // a model, checkpoint or engine directory; empty: the adapter is not checked against one
  bool int8_adapters = false;  // the server has --lora_storage int8
};
// path: a directory or a .nemo file.
void inspectAdapter(const std::filesystem::path& path, const AdapterBase& base, Inspection& found);
// Like inspectAdapter, for the tensors that lora-convert writes.
void inspectLoraTensors(const std::filesystem::path& dir, const AdapterBase& base, Inspection& found);
void inspectTokenizer(const std::filesystem::path& dir, Inspection& found);
// safetensors, PyTorch, npy and engine files, distinguished by their first bytes and their ending.
void inspectFile(const std::filesystem::path& file, Inspection& found);

enum class DirectoryKind { kModel, kCheckpoint, kEngine, kAdapter, kLoraTensors, kTokenizer };
// Throws Error(kUnsupported) that names what the directory holds, or what it lacks.
DirectoryKind directoryKind(const std::filesystem::path& dir);

}  // namespace chorus
