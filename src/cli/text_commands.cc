#include "cli/text_commands.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/exact_json.h"
#include "base/file.h"
#include "base/work_meter.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {
namespace {

// Writes convert(row, place) for every input line. `row` is the line's JSON, `place` its file and line for errors.
int convertLines(const TextCommandOptions& options,
                 const std::function<Json(const OrderedJson& row, const std::string& place)>& convert) {
  std::ifstream in(options.input_file, std::ios::binary);
  if (!in) fail(ErrorCode::kNotFound, "--input_file {}: cannot be read", options.input_file.string());
  std::string out, line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const std::string place = options.input_file.string() + " line " + std::to_string(number);
    out += convert(parseExactJson(line, place), place).dump() + "\n";
  }
  if (in.bad()) fail(ErrorCode::kCorrupt, "--input_file {}: reading failed", options.input_file.string());
  writeFileAtomically(options.output_file, out);
  return 0;
}
}  // namespace

int runTokenize(const TextCommandOptions& options) {
  const auto tokenizer = Tokenizer::load(options.tokenizer_dir);
  return convertLines(options, [&](const OrderedJson& row, const std::string& place) {
    if (!row.is_string()) fail(ErrorCode::kInvalidArgument, "{}: expected a JSON string", place);
    return Json(tokenizer->encode(row.get_ref<const std::string&>(), !options.no_special_tokens));
  });
}

int runDetokenize(const TextCommandOptions& options) {
  const auto tokenizer = Tokenizer::load(options.tokenizer_dir);
  return convertLines(options, [&](const OrderedJson& row, const std::string& place) {
    if (!row.is_array()) fail(ErrorCode::kInvalidArgument, "{}: expected a JSON list of token ids", place);
    std::vector<int32_t> ids;
    ids.reserve(row.size());
    for (const auto& id : row) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(tokenizer->vocabSize())) {
        fail(ErrorCode::kInvalidArgument, "{}: a token id must be an integer from 0 to {}", place,
             tokenizer->vocabSize() - 1);
      }
      ids.push_back(id.get<int32_t>());
    }
    return Json(tokenizer->decode(ids, options.skip_special_tokens));
  });
}

int runChatTemplate(const TextCommandOptions& options) {
  const auto tokenizer = Tokenizer::load(options.tokenizer_dir);
  WorkMeter meter;
  const ChatTemplates templates(*tokenizer, options.tokenizer_dir.string(), meter);
  return convertLines(options, [&](const OrderedJson& row, const std::string& place) {
    if (!row.is_object() || !row.contains("messages")) {
      fail(ErrorCode::kInvalidArgument, "{}: expected an object with 'messages'", place);
    }
    ChatTemplateInput input;
    input.add_generation_prompt = options.add_generation_prompt;
    for (const auto& [key, value] : row.items()) {
      if (key == "messages")
        input.messages = value;
      else if (key == "tools")
        input.tools = value;
      else if (key == "documents")
        input.documents = value;
      else if (key == "chat_template_kwargs")
        input.variables = value;
      else
        fail(ErrorCode::kInvalidArgument,
             "{}: unknown key '{}'; 'messages', 'tools', 'documents' and "
             "'chat_template_kwargs' are known",
             place, key);
    }
    try {
      return Json(templates.render(std::move(input)));
    } catch (const Error& e) {
      fail(e.code(), "{}: {}", place, e.what());
    }
  });
}

void addTextCommands(CLI::App& app) {
  const auto add = [&](const char* name, const char* description, int (*run)(const TextCommandOptions&)) {
    CLI::App* command = app.add_subcommand(name, description);
    auto options = std::make_shared<TextCommandOptions>();
    command
        ->add_option("--tokenizer_dir", options->tokenizer_dir,
                     "directory with a tokenizer, of any kind in docs/text.md")
        ->required();
    command->add_option("--input_file", options->input_file, "one JSON value a line")->required();
    command->add_option("--output_file", options->output_file, "one JSON value for each line of the input")->required();
    command->callback([options, run] {
      if (const int status = run(*options); status != 0) throw CLI::RuntimeError(status);
    });
    return std::pair(command, options);
  };
  const auto [tokenize, tokenize_options] = add("tokenize", "Turn JSON strings into lists of token ids", runTokenize);
  tokenize->add_flag("--no_special_tokens", tokenize_options->no_special_tokens,
                     "leave out the tokens around a text (begin of text and the like)");
  const auto [detokenize, detokenize_options] =
      add("detokenize", "Turn lists of token ids into JSON strings", runDetokenize);
  detokenize->add_flag("--skip_special_tokens", detokenize_options->skip_special_tokens, "leave special tokens out");
  const auto [chat, chat_options] = add(
      "chat-template", "Turn objects with \"messages\" and \"tools\" into prompts, as JSON strings", runChatTemplate);
  chat->add_flag("--add_generation_prompt", chat_options->add_generation_prompt,
                 "end with the beginning of the assistant's answer");
}

}  // namespace chorus
