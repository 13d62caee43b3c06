// Builds the messages of a chat from the requests of other APIs.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus::server {

// Appends a message of one text to the array, except a system message without text. A message of the role that the last
// one has continues that one on a new line if `join` is set: many chat templates accept only roles that alternate, and
// one system message.
void appendMessage(OrderedJson& messages, std::string_view role, std::string text, bool join);

// For a chat template that does not know the role developer. If a message has this role, all messages of the roles
// developer and system become system messages of their text alone, appended with `join`.
OrderedJson withoutDeveloper(OrderedJson messages);

}  // namespace chorus::server
