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
  for (OrderedJson& message : messages) {
    if (is_developer(message)) message["role"] = "system";
    if (message["role"] == "system" && message.contains("content") && message["content"].is_string()) {
      const bool joins = !out.empty() && out.back().contains("content") && out.back()["content"].is_string();
      appendMessage(out, "system", std::move(message["content"].get_ref<std::string&>()), joins);
    } else {
      out.push_back(std::move(message));
    }
  }
  return out;
}

}  // namespace chorus::server
