// The kinds of model sources. Each kind has a reader; which one reads a path is decided by what the path holds.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/sources/source_model.h"

namespace chorus {

struct SourceReader {
  std::string_view kind;  // for people: "Hugging Face model"
  // Whether the path, a directory or a file, holds a source of this kind. Looks at the names of files and the
  // beginnings of small files only, and throws nothing.
  bool (*recognises)(const std::filesystem::path& path);
  // Reads only the config. Throws Error if it is not readable or names an unknown architecture.
  void (*check)(const std::filesystem::path& path);
  // Opens the source and checks its tensors against its config. Throws Error.
  SourceModel (*open)(const std::filesystem::path& path, const ConvertOptions& options);
  // The files that the weights depend on: relative to the path if it is a directory, otherwise only the file's name.
  // The order depends only on the names. They may be missing. Throws Error if the directory cannot be read.
  std::vector<std::filesystem::path> (*files)(const std::filesystem::path& path);
  // Name and content of each of the tokenizer's files, under the names that they have in a Hugging Face directory.
  // Null: the path is a directory in which they have these names. Throws Error if the source has none that can be read.
  std::vector<std::pair<std::string, std::string>> (*tokenizer)(const std::filesystem::path& path) = nullptr;
};

// Why the path of a model that does not exist cannot be used, for error lines. A path that looks like a model's name on
// Hugging Face, ORG/NAME, gets advice.
std::string missingModelText(const std::filesystem::path& path);

// All readers, in the order in which they are tried.
std::span<const SourceReader> sourceReaders();

// The reader that recognises the path; nullptr if none does.
const SourceReader* findSourceReader(const std::filesystem::path& path);

// Throws Error(kUnsupported), with the name of what the path holds and what to do, if that is a kind of model that is
// known but has no reader.
void refuseUnsupportedSource(const std::filesystem::path& path);

// Returns the reader of a path that must hold a model. Throws Error: kNotFound if the path does not exist or holds
// nothing known; kUnsupported for adapters, and as refuseUnsupportedSource.
const SourceReader& sourceReaderOf(const std::filesystem::path& path);

// SourceReader::open with the reader of the path. Throws the Errors of both.
SourceModel openSource(const std::filesystem::path& path, const ConvertOptions& options);

}  // namespace chorus
