// Chat templates: the Jinja templates that come with Hugging Face models, rendered with the same output as
// transformers.
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
  // Ordered, because a template that prints an object prints its keys in input order.
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools;      // null: none
  OrderedJson documents;  // null: none
  bool add_generation_prompt = false;
  // The prompt ends inside the last message, so that the answer continues it.
  bool continue_final_message = false;
  // Variables such as "bos_token" (name to text) that the template may print.
  std::map<std::string, std::string> special_tokens;
  // More variables (chat_template_kwargs), an object; they take precedence over special_tokens.
  OrderedJson variables = OrderedJson::object();
  // The time that strftime_now formats; nullopt: the current time.
  std::optional<std::time_t> now;
};

// Compiled once; may be rendered from any thread. A template can access nothing but its input. Work, memory, depth and
// the length of ranges of one rendering are limited: 256 MiB of work plus 128 bytes of work per byte of input, and 16
// MiB of memory plus 16 bytes per byte of input.
class ChatTemplate {
 public:
  static constexpr size_t kMaxCompiledBytes = size_t{64} << 20;

  // Throws Error(kInvalidArgument), naming source and line, if the template doesn't parse or takes more than max_bytes
  // of memory. Charges its work to the meter and throws what the meter throws.
  static std::shared_ptr<const ChatTemplate> compile(std::string_view text, const std::string& source, WorkMeter& meter,
                                                     size_t max_bytes = kMaxCompiledBytes);
  // Overload without a limit on the work, for trusted templates only.
  static std::shared_ptr<const ChatTemplate> compile(std::string_view text, const std::string& source);
  ~ChatTemplate();

  // Throws Error(kInvalidArgument) with source, line and reason; the reason may be the text that the template passed to
  // raise_exception. Charges its work to the meter and throws what the meter throws.
  // small_budget: for templates sent by clients; 32 MiB of work plus 64 bytes of work per byte of input, and 8 MiB of
  // memory plus 16 bytes per byte of input.
  std::string render(const ChatTemplateInput& input, WorkMeter& meter, bool small_budget = false) const;
  // Uses a meter without a limit: for trusted input only.
  std::string render(const ChatTemplateInput& input) const;
  // Whether the template's text has the role "developer" as a string.
  bool namesDeveloper() const;
  // Bytes of memory held by the compiled template.
  size_t memoryBytes() const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// The compiled chat templates of one model, by name.
class ChatTemplates {
 public:
  // Throws as ChatTemplate::compile does, and charges the meter; source names the model in errors. All templates
  // together may take kMaxCompiledBytes.
  ChatTemplates(const Tokenizer& tokenizer, std::string source, WorkMeter& meter);

  bool empty() const { return templates_.empty(); }
  bool has(const std::string& name) const { return templates_.contains(name); }
  // Bytes of memory held by the compiled templates.
  size_t memoryBytes() const;
  // Whether the template that render() uses for this wish names the role "developer" (ChatTemplate::namesDeveloper).
  bool nameDeveloper(const std::optional<std::string>& wish, bool with_tools) const;
  // wish: the client's choice, which is the name of one of the model's templates or else the text of a template.
  // Without it, "tool_use" is rendered if tools are given and the model has it, otherwise "default". Throws
  // Error(kInvalidArgument) if the model has no such template. Fills in input.special_tokens from the tokenizer.
  std::string render(ChatTemplateInput input, const std::optional<std::string>& wish, WorkMeter& meter) const;
  std::string render(ChatTemplateInput input, const std::optional<std::string>& wish = std::nullopt) const;

 private:
  // The template for a request without a choice; null if there is none.
  const ChatTemplate* usual(bool with_tools) const;

  std::string source_;
  std::map<std::string, std::string> special_tokens_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates_;
};

}  // namespace chorus
