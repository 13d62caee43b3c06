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

// Returns the messages for a chat template that does not know the role developer. If any message has that role, every
// developer and system message that has text becomes a system message of only that text, and neighbours are joined.
// Developer messages without text only change their role.
OrderedJson withoutDeveloper(OrderedJson messages);

}  // namespace chorus::server
