#include "text/chat_template.h"

#include <cstring>

#include "base/error.h"
#include "text/template/from_json.h"
#include "text/template/interpreter.h"
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

// Appended to the text of the last message; cutAtMark() cuts the rendering at this mark.
constexpr std::string_view kContinueMark = "CONTINUE_FINAL_MESSAGE_TAG ";

// The text of the last message, which the answer continues.
const OrderedJson& finalText(const OrderedJson& messages, const std::string& source) {
  if (!messages.empty() && messages.back().contains("content")) {
    const OrderedJson& content = messages.back()["content"];
    if (content.is_string()) return content;
    for (size_t i = content.is_array() ? content.size() : 0; i-- > 0;) {
      if (content[i].is_object() && content[i].contains("text") && content[i]["text"].is_string())
        return content[i]["text"];
    }
  }
  fail(ErrorCode::kInvalidArgument, "{}: continue_final_message is set, but the last message has no text", source);
}

std::string_view withoutSpace(std::string_view text, bool left) {
  if (left) text.remove_prefix(leadingSpace(text));
  return text.substr(0, text.size() - trailingSpace(text));
}

bool contains(std::string_view text, std::string_view part) {
  return memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

// Returns the text before the mark. A template that trims messages also removes the mark's trailing space; the white
// space at the end of the message is then trimmed as well.
std::string cutAtMark(const std::string& rendered, std::string_view final_text, const std::string& source) {
  const std::string_view mark = withoutSpace(kContinueMark, false);
  const size_t at = rendered.rfind(mark);
  if (at == std::string::npos || !contains(rendered, withoutSpace(final_text, true))) {
    fail(ErrorCode::kInvalidArgument,
         "{}: continue_final_message is set, but the template does not print the last message unchanged", source);
  }
  const std::string_view before = std::string_view(rendered).substr(0, at);
  const bool whole = std::string_view(rendered).substr(at).starts_with(kContinueMark);
  return std::string(whole ? before : withoutSpace(before, false));
}

bool hasDeveloperText(std::string_view text) {
  return contains(text, "'developer'") || contains(text, "\"developer\"");
}

tmpl::Limits limitsOf(bool small_budget) {
  if (!small_budget) return {};
  return {.max_work = uint64_t{32} << 20, .max_memory = size_t{8} << 20, .work_per_byte = 64};
}
}  // namespace

struct ChatTemplate::State {
  explicit State(size_t max_bytes) : memory(max_bytes) {}

  std::string source;
  bool names_developer = false;
  tmpl::MemoryLimit memory;
  tmpl::Arena arena{memory};
  tmpl::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::compile(std::string_view text, const std::string& source) {
  WorkMeter meter;
  return compile(text, source, meter);
}

std::shared_ptr<const ChatTemplate> ChatTemplate::compile(std::string_view text, const std::string& source,
                                                          WorkMeter& meter, size_t max_bytes) {
  if (text.size() > kMaxTemplateBytes) {
    fail(ErrorCode::kInvalidArgument, "{}: it has {} bytes; the limit is {}", source, text.size(), kMaxTemplateBytes);
  }
  auto state = std::make_unique<State>(max_bytes);
  state->source = source;
  state->names_developer = hasDeveloperText(text);
  try {
    state->body = tmpl::parseTemplate(text, state->arena, meter);
  } catch (const tmpl::TemplateSyntaxError& e) {
    fail(ErrorCode::kInvalidArgument, "{} line {}: {}", source, e.line, e.message);
  } catch (const tmpl::TemplateError& e) {
    fail(ErrorCode::kInvalidArgument, "{}: {}", source, e.what());
  }
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(state)));
}

bool ChatTemplate::namesDeveloper() const { return state_->names_developer; }

size_t ChatTemplate::memoryBytes() const { return sizeof(State) + state_->source.capacity() + state_->arena.bytes(); }

std::string ChatTemplate::render(const ChatTemplateInput& input) const {
  WorkMeter meter;
  return render(input, meter);
}

std::string ChatTemplate::render(const ChatTemplateInput& input, WorkMeter& meter, bool small_budget) const {
  meter.charge(WorkMeter::kObject);
  requireShape(input, state_->source);
  tmpl::Runtime rt(limitsOf(small_budget), meter, input.now.value_or(std::time(nullptr)));
  tmpl::Interpreter interpreter(rt);
  try {
    tmpl::JsonReader reader(rt);
    const auto& variables = input.variables;
    for (auto it = variables.begin(); it != variables.end(); ++it) interpreter.define(it.key(), reader.read(*it));
    for (const auto& [name, token] : input.special_tokens) {
      if (!variables.contains(name)) interpreter.define(name, rt.validText(token));
    }
    std::string_view final_text;
    if (input.continue_final_message) {
      const OrderedJson& json = finalText(input.messages, state_->source);
      final_text = json.get_ref<const std::string&>();
      reader.replace(&json, rt.concat(rt.validText(final_text).string(), kContinueMark).string());
    }
    interpreter.define("messages", reader.readMessages(input.messages));
    interpreter.define("tools", reader.read(input.tools));
    if (!input.documents.is_null() || !variables.contains("documents"))
      interpreter.define("documents", reader.read(input.documents));
    interpreter.define("add_generation_prompt", tmpl::Value(input.add_generation_prompt));
    std::string rendered = interpreter.run(state_->body);
    return input.continue_final_message ? cutAtMark(rendered, final_text, state_->source) : rendered;
  } catch (const tmpl::TemplateError& e) {
    fail(ErrorCode::kInvalidArgument, "{} line {}: {}", state_->source, interpreter.line(), e.what());
  }
}

ChatTemplates::ChatTemplates(const Tokenizer& tokenizer, std::string source, WorkMeter& meter)
    : source_(std::move(source)), special_tokens_(tokenizer.specialTokens()) {
  size_t left = ChatTemplate::kMaxCompiledBytes;
  for (const auto& [name, text] : tokenizer.chatTemplates()) {
    const auto& compiled = templates_[name] = ChatTemplate::compile(text, source_, meter, left);
    left -= std::min(left, compiled->memoryBytes());
  }
}

size_t ChatTemplates::memoryBytes() const {
  size_t bytes = sizeof(*this) + source_.capacity();
  for (const auto& [name, compiled] : templates_) bytes += name.capacity() + compiled->memoryBytes();
  return bytes;
}

const ChatTemplate* ChatTemplates::usual(bool with_tools) const {
  auto it = with_tools ? templates_.find("tool_use") : templates_.end();
  if (it == templates_.end()) it = templates_.find("default");
  return it == templates_.end() ? nullptr : it->second.get();
}

bool ChatTemplates::nameDeveloper(const std::optional<std::string>& wish, bool with_tools) const {
  if (!wish) {
    const ChatTemplate* const found = usual(with_tools);
    return found != nullptr && found->namesDeveloper();
  }
  const auto named = templates_.find(*wish);
  return named != templates_.end() ? named->second->namesDeveloper() : hasDeveloperText(*wish);
}

std::string ChatTemplates::render(ChatTemplateInput input, const std::optional<std::string>& wish) const {
  WorkMeter meter;
  return render(std::move(input), wish, meter);
}

std::string ChatTemplates::render(ChatTemplateInput input, const std::optional<std::string>& wish,
                                  WorkMeter& meter) const {
  input.special_tokens = special_tokens_;
  if (wish) {
    if (const auto named = templates_.find(*wish); named != templates_.end())
      return named->second->render(input, meter);
    if (wish->size() > kMaxClientTemplateBytes) {
      fail(ErrorCode::kInvalidArgument, "{}: the template has {} bytes; the limit is {}", source_, wish->size(),
           kMaxClientTemplateBytes);
    }
    return ChatTemplate::compile(*wish, source_, meter)->render(input, meter, true);
  }
  const ChatTemplate* const found = usual(!input.tools.is_null());
  if (found == nullptr) {
    fail(ErrorCode::kInvalidArgument, "{}: the model has no chat template; give one in chat_template.jinja", source_);
  }
  return found->render(input, meter);
}

}  // namespace chorus
