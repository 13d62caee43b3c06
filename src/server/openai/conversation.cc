#include "server/openai/conversation.h"

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

}  // namespace chorus::server
