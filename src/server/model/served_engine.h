// From the options to an engine directory that can be loaded.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "server/model/generation_defaults.h"
#include "server/model/text_codec.h"
#include "server/serve_options.h"

namespace chorus::server {

struct ServedEngine {
  std::filesystem::path engineDirectory;
  std::filesystem::path tokenizerDirectory;
  // Of the tokenizer's directory.
  std::shared_ptr<const TextCodec> text;
  GenerationDefaults defaults;
  // Builds a cached engine anew after its load failed; empty when the engine was given.
  std::function<void()> rebuild;
};

// Takes the given engine, or converts and builds the Hugging Face directory into the engine cache unless it is there.
// What can be known at once is checked first (start_checks.h). Throws Error.
ServedEngine locateEngine(const ServeOptions& options);

}  // namespace chorus::server
