// Chat templates: the Jinja that Hugging Face models carry, rendered as transformers renders it.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/work_meter.h"

namespace chorus {

class Tokenizer;

struct ChatTemplateInput {
  // Ordered, because templates print objects with their keys in the order in which they came.
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools;      // null: none
  OrderedJson documents;  // null: none
  bool add_generation_prompt = false;
  // The prompt ends inside the last message, so that the answer continues it.
  bool continue_final_message = false;
  // Names like "bos_token" that the template may print.
  std::map<std::string, std::string> special_tokens;
  // More variables (chat_template_kwargs), an object; they take precedence over special_tokens.
  OrderedJson variables = OrderedJson::object();
  // What strftime_now sees; nothing is the present.
  std::optional<std::time_t> now;
};

// Compiled once, rendered from any thread. Templates reach nothing outside themselves, and the work, memory, depth and
// ranges of one rendering are bounded: 256 MiB of work and 16 MiB of memory, and 128 bytes of work and 16 of memory for
// each byte of the input.
class ChatTemplate {
 public:
  // Throws Error(kInvalidArgument) with source and line on a template that doesn't parse.
  // Charges the meter for its work and throws what the meter throws.
  static std::shared_ptr<const ChatTemplate> compile(std::string_view text, const std::string& source,
                                                     WorkMeter& meter);
  // Without a limit on the work: for templates that are trusted.
  static std::shared_ptr<const ChatTemplate> compile(std::string_view text, const std::string& source);
  ~ChatTemplate();

  // Throws Error(kInvalidArgument) with source, line and the reason, which may be the template's own raise_exception.
  // small_budget: for templates that clients send: 32 MiB of work and 8 MiB of memory, and 64 and 16 bytes for each
  // byte of the input. Charges the meter for its work and throws what the meter throws.
  std::string render(const ChatTemplateInput& input, WorkMeter& meter, bool small_budget = false) const;
  // Without a limit of its own: for input that is trusted.
  std::string render(const ChatTemplateInput& input) const;
  // Memory that the compiled form holds.
  size_t memoryBytes() const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// The templates of a model, compiled.
class ChatTemplates {
 public:
  // Throws as ChatTemplate::compile does; source names the model in errors.
  ChatTemplates(const Tokenizer& tokenizer, std::string source);

  bool empty() const { return templates_.empty(); }
  bool has(const std::string& name) const { return templates_.contains(name); }
  // Memory that the compiled templates hold.
  size_t memoryBytes() const;
  // By a client's wish, which is the name of one of the model's templates or the text of another; without one,
  // "tool_use" where there is one and tools are given, else "default". Throws Error(kInvalidArgument) when there is
  // none. input.special_tokens are filled in from the tokenizer.
  std::string render(ChatTemplateInput input, const std::optional<std::string>& wish, WorkMeter& meter) const;
  std::string render(ChatTemplateInput input, const std::optional<std::string>& wish = std::nullopt) const;

 private:
  std::string source_;
  std::map<std::string, std::string> special_tokens_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates_;
};

}  // namespace chorus
