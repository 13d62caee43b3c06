// Locates or builds the engine directory for the options.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "server/serve_options.h"
#include "text/generation_defaults.h"
#include "text/text_codec.h"

namespace chorus::server {

struct ServedEngine {
  std::filesystem::path engine_directory;
  std::filesystem::path tokenizer_directory;
  // Tokenizer and templates of tokenizer_directory.
  std::shared_ptr<const TextCodec> text;
  GenerationDefaults defaults;
  // Builds a cached engine again after its load failed. Empty if the options name an engine.
  std::function<void()> rebuild;
};

// Uses the engine that the options name; otherwise converts the Hugging Face directory and builds its engine, unless
// the engine cache has it. First makes the quick checks of start_checks.h. Throws Error.
ServedEngine locateEngine(const ServeOptions& options);

}  // namespace chorus::server
