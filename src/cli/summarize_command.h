// chorus summarize: evaluates a model by summaries of articles, as TensorRT-LLM's summarize.py does.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addSummarizeCommand(CLI::App& app);

}  // namespace chorus
