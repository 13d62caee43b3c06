// From the options to an engine directory that can be loaded.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "server/serve_options.h"

namespace chorus::server {

struct ServedEngine {
  std::filesystem::path engineDirectory;
  std::filesystem::path tokenizerDirectory;
  // Builds a cached engine anew after its load failed; empty when the engine was given.
  std::function<void()> rebuild;
};

// Takes the given engine, or converts and builds the Hugging Face directory into the engine cache unless it is there.
// Throws Error.
ServedEngine locateEngine(const ServeOptions& options);

}  // namespace chorus::server
