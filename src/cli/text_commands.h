// chorus tokenize | detokenize | chat-template: pass the lines of a file through the tokenizer or the chat template.
#pragma once

#include <filesystem>

namespace CLI {
class App;
}

namespace chorus {

struct TextCommandOptions {
  std::filesystem::path tokenizer_dir;
  std::filesystem::path input_file;    // one JSON value per line; empty lines are errors
  std::filesystem::path output_file;   // written whole at the end, one line per input line
  bool no_special_tokens = false;      // tokenize: adds no special tokens around the text
  bool skip_special_tokens = false;    // detokenize: leaves special tokens out
  bool add_generation_prompt = false;  // chat-template
};

// Each returns the exit status, 0. Throws Error that names the file and line of the first bad row; the output file is
// then not written.
int runTokenize(const TextCommandOptions& options);
int runDetokenize(const TextCommandOptions& options);
int runChatTemplate(const TextCommandOptions& options);

// Registers the three subcommands; their callbacks run them.
void addTextCommands(CLI::App& app);

}  // namespace chorus
