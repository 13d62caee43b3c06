#include "text/chat_template.h"

#include "base/error.h"
#include "text/template/interpreter.h"
#include "text/template/lexer.h"
#include "text/template/parser.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
constexpr size_t kMaxClientTemplateBytes = size_t{64} << 10;

void requireShape(const ChatTemplateInput& input, const std::string& source) {
  if (!input.messages.is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'messages' must be a list", source);
  for (const auto& message : input.messages) {
    if (!message.is_object()) fail(ErrorCode::kInvalidArgument, "{}: each of 'messages' must be an object", source);
  }
  if (!input.tools.is_null()) {
    if (!input.tools.is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'tools' must be a list", source);
    for (const auto& tool : input.tools) {
      if (!tool.is_object()) fail(ErrorCode::kInvalidArgument, "{}: each of 'tools' must be an object", source);
    }
  }
  if (!input.documents.is_null()) {
    if (!input.documents.is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'documents' must be a list", source);
    for (const auto& document : input.documents) {
      if (!document.is_object()) fail(ErrorCode::kInvalidArgument, "{}: each of 'documents' must be an object", source);
    }
  }
  if (!input.variables.is_object()) fail(ErrorCode::kInvalidArgument, "{}: variables must be an object", source);
}

// A message's reasoning has had several names; templates find it under the one they know.
OrderedJson withReasoningNames(const OrderedJson& message) {
  const OrderedJson* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto it = message.find(name);
    if (it == message.end() || it->is_null()) continue;
    reasoning = &*it;
    break;
  }
  if (reasoning == nullptr) return message;
  OrderedJson named = {{"thinking", *reasoning}};
  for (const auto& [key, value] : message.items()) named[key] = value;
  named["reasoning_content"] = *reasoning;
  return named;
}

// Stands where the last message's text ends, until the rendering is cut there.
constexpr std::string_view kContinueMark = "CONTINUE_FINAL_MESSAGE_TAG ";

// Appends the mark to the text of the last message and returns the text as it was.
std::string markFinalMessage(OrderedJson& messages, const std::string& source) {
  OrderedJson* text = nullptr;
  if (!messages.empty() && messages.back().contains("content")) {
    OrderedJson& content = messages.back()["content"];
    if (content.is_string()) text = &content;
    for (size_t i = content.is_array() ? content.size() : 0; i-- > 0 && text == nullptr;) {
      if (content[i].is_object() && content[i].contains("text") && content[i]["text"].is_string())
        text = &content[i]["text"];
    }
  }
  if (text == nullptr) {
    fail(ErrorCode::kInvalidArgument, "{}: continue_final_message is set, but the last message has no text", source);
  }
  std::string before = text->get<std::string>();
  *text = before + std::string(kContinueMark);
  return before;
}

std::string_view withoutSpace(std::string_view text, bool left) {
  if (left) text.remove_prefix(leadingSpace(text));
  return text.substr(0, text.size() - trailingSpace(text));
}

// What stands before the mark. A template that trims messages trims the mark's space too; then the text's own end is
// trimmed as well.
std::string cutAtMark(const std::string& rendered, const std::string& final_text, const std::string& source) {
  const std::string_view mark = withoutSpace(kContinueMark, false);
  const size_t at = rendered.rfind(mark);
  if (at == std::string::npos || rendered.find(withoutSpace(final_text, true)) == std::string::npos) {
    fail(ErrorCode::kInvalidArgument,
         "{}: continue_final_message is set, but the template does not print the last "
         "message as it is",
         source);
  }
  const std::string_view before = std::string_view(rendered).substr(0, at);
  const bool whole = std::string_view(rendered).substr(at).starts_with(kContinueMark);
  return std::string(whole ? before : withoutSpace(before, false));
}
}  // namespace

struct ChatTemplate::State {
  std::string source;
  tmpl::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::compile(std::string_view text, const std::string& source) {
  if (text.size() > kMaxTemplateBytes) {
    fail(ErrorCode::kInvalidArgument, "{}: a chat template of {} bytes, more than the limit of {}", source, text.size(),
         kMaxTemplateBytes);
  }
  auto state = std::make_unique<State>();
  state->source = source;
  try {
    state->body = tmpl::parseTemplate(text);
  } catch (const tmpl::TemplateSyntaxError& e) {
    fail(ErrorCode::kInvalidArgument, "{}: chat template line {}: {}", source, e.line, e.message);
  }
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(state)));
}

std::string ChatTemplate::render(const ChatTemplateInput& input, bool small_budget) const {
  requireShape(input, state_->source);
  tmpl::Limits limits;
  if (small_budget) limits.max_steps /= 8, limits.max_bytes /= 8;
  tmpl::Runtime rt(limits, input.now.value_or(std::time(nullptr)));
  tmpl::Interpreter interpreter(rt);
  try {
    std::map<std::string, tmpl::Value> variables;
    for (const auto& [name, token] : input.special_tokens) variables[name] = tmpl::Value(toValidUtf8(token));
    for (const auto& [name, value] : input.variables.items()) variables[name] = tmpl::fromJson(value);
    OrderedJson messages = OrderedJson::array();
    for (const auto& message : input.messages) messages.push_back(withReasoningNames(message));
    std::string final_text;
    if (input.continue_final_message) final_text = markFinalMessage(messages, state_->source);
    variables["messages"] = tmpl::fromJson(messages);
    variables["tools"] = tmpl::fromJson(input.tools);
    if (!input.documents.is_null())
      variables["documents"] = tmpl::fromJson(input.documents);
    else
      variables.emplace("documents", tmpl::Value());
    variables["add_generation_prompt"] = tmpl::Value(input.add_generation_prompt);
    std::string rendered = interpreter.run(state_->body, variables);
    return input.continue_final_message ? cutAtMark(rendered, final_text, state_->source) : rendered;
  } catch (const tmpl::TemplateError& e) {
    fail(ErrorCode::kInvalidArgument, "{}: chat template line {}: {}", state_->source, interpreter.line(), e.what());
  }
}

ChatTemplates::ChatTemplates(const Tokenizer& tokenizer, std::string source)
    : source_(std::move(source)), special_tokens_(tokenizer.specialTokens()) {
  for (const auto& [name, text] : tokenizer.chatTemplates()) templates_[name] = ChatTemplate::compile(text, source_);
}

std::string ChatTemplates::render(ChatTemplateInput input, const std::optional<std::string>& wish) const {
  input.special_tokens = special_tokens_;
  if (wish) {
    if (const auto named = templates_.find(*wish); named != templates_.end()) return named->second->render(input);
    if (wish->size() > kMaxClientTemplateBytes) {
      fail(ErrorCode::kInvalidArgument, "{}: a template of {} bytes, more than the limit of {}", source_, wish->size(),
           kMaxClientTemplateBytes);
    }
    return ChatTemplate::compile(*wish, source_)->render(input, true);
  }
  auto it = input.tools.is_null() ? templates_.end() : templates_.find("tool_use");
  if (it == templates_.end()) it = templates_.find("default");
  if (it == templates_.end()) {
    fail(ErrorCode::kInvalidArgument, "{}: the model has no chat template; give one in chat_template.jinja", source_);
  }
  return it->second->render(input);
}

}  // namespace chorus
