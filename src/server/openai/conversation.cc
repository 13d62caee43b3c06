#include "server/openai/conversation.h"

#include <algorithm>
#include <utility>

namespace chorus::server {

void appendMessage(OrderedJson& messages, std::string_view role, std::string text, bool join) {
  if (role == "system" && text.empty()) return;
  if (join && !messages.empty() && messages.back()["role"] == role) {
    auto& before = messages.back()["content"].get_ref<std::string&>();
    before += '\n';
    before += text;
    return;
  }
  OrderedJson message = OrderedJson::object();
  message["role"] = role;
  message["content"] = std::move(text);
  messages.push_back(std::move(message));
}

OrderedJson withoutDeveloper(OrderedJson messages) {
  const auto is_developer = [](const OrderedJson& message) { return message["role"] == "developer"; };
  if (std::ranges::none_of(messages, is_developer)) return messages;
  OrderedJson out = OrderedJson::array();
  const auto has_text = [](const OrderedJson& message) {
    const auto content = message.find("content");
    return content != message.end() && content->is_string() && !content->get_ref<const std::string&>().empty();
  };
  for (OrderedJson& message : messages) {
    if (is_developer(message)) message["role"] = "system";
    if (message["role"] == "system" && has_text(message)) {
      const bool joins = !out.empty() && has_text(out.back());
      appendMessage(out, "system", std::move(message["content"].get_ref<std::string&>()), joins);
    } else {
      out.push_back(std::move(message));
    }
  }
  return out;
}

}  // namespace chorus::server
