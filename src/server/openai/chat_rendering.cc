#include "server/openai/chat_rendering.h"

#include <fmt/format.h>

namespace chorus::server {
namespace {

constexpr size_t kMaxVariables = 64;
constexpr size_t kMaxDocuments = 1024;

OrderedJson readVariables(const FieldReader& fields) {
  constexpr const char* kField = "chat_template_kwargs";
  const OrderedJson* variables = fields.find(kField);
  if (variables == nullptr) return OrderedJson::object();
  if (!variables->is_object()) fields.refuseType(kField, "an object");
  if (variables->size() > kMaxVariables) fields.refuse(kField, fmt::format("at most {} names", kMaxVariables));
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}) {
    if (variables->contains(name)) fields.refuse(kField, fmt::format("'{}' is a field of the request itself", name));
  }
  return *variables;
}

OrderedJson readDocuments(const FieldReader& fields) {
  const OrderedJson* documents = fields.find("documents");
  if (documents == nullptr || (documents->is_array() && documents->empty())) return nullptr;
  if (!documents->is_array()) fields.refuseType("documents", "an array of objects");
  if (documents->size() > kMaxDocuments) fields.refuse("documents", fmt::format("at most {} objects", kMaxDocuments));
  for (const OrderedJson& document : *documents) {
    if (!document.is_object()) fields.refuseType("documents", "an array of objects");
  }
  return *documents;
}

}  // namespace

ChatRendering readChatTemplate(const FieldReader& fields) {
  ChatRendering how;
  how.documents = readDocuments(fields);
  how.variables = readVariables(fields);
  how.chat_template = fields.string("chat_template");
  // Some clients put it among the variables. It means the same there and gets the same checks.
  if (how.variables.contains("chat_template")) {
    if (how.chat_template) fields.refuse("chat_template", "it is given twice");
    how.chat_template = FieldReader(how.variables, "chat_template_kwargs").string("chat_template");
    how.variables.erase("chat_template");
  }
  return how;
}

ChatRendering readChatRendering(const FieldReader& fields) {
  ChatRendering how = readChatTemplate(fields);
  how.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  how.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (how.continue_final_message && how.add_generation_prompt) {
    fields.refuse("continue_final_message", "it needs 'add_generation_prompt' to be false");
  }
  return how;
}

}  // namespace chorus::server
