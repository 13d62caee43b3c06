#include "text/chat_template.h"

#include "base/error.h"
#include "text/template/interpreter.h"
#include "text/template/lexer.h"
#include "text/template/parser.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

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

std::string ChatTemplate::render(const ChatTemplateInput& input) const {
  requireShape(input, state_->source);
  tmpl::Runtime rt({}, input.now.value_or(std::time(nullptr)));
  tmpl::Interpreter interpreter(rt);
  try {
    std::map<std::string, tmpl::Value> variables;
    for (const auto& [name, token] : input.special_tokens) variables[name] = tmpl::Value(toValidUtf8(token));
    for (const auto& [name, value] : input.variables.items()) variables[name] = tmpl::fromJson(value);
    OrderedJson messages = OrderedJson::array();
    for (const auto& message : input.messages) messages.push_back(withReasoningNames(message));
    variables["messages"] = tmpl::fromJson(messages);
    variables["tools"] = tmpl::fromJson(input.tools);
    variables.emplace("documents", tmpl::Value());
    variables["add_generation_prompt"] = tmpl::Value(input.add_generation_prompt);
    return interpreter.run(state_->body, variables);
  } catch (const tmpl::TemplateError& e) {
    fail(ErrorCode::kInvalidArgument, "{}: chat template line {}: {}", state_->source, interpreter.line(), e.what());
  }
}

ChatTemplates::ChatTemplates(const Tokenizer& tokenizer, std::string source)
    : source_(std::move(source)), special_tokens_(tokenizer.specialTokens()) {
  for (const auto& [name, text] : tokenizer.chatTemplates()) templates_[name] = ChatTemplate::compile(text, source_);
}

std::string ChatTemplates::render(ChatTemplateInput input) const {
  auto it = input.tools.is_null() ? templates_.end() : templates_.find("tool_use");
  if (it == templates_.end()) it = templates_.find("default");
  if (it == templates_.end()) {
    fail(ErrorCode::kInvalidArgument, "{}: the model has no chat template; give one in chat_template.jinja", source_);
  }
  input.special_tokens = special_tokens_;
  return it->second->render(input);
}

}  // namespace chorus
