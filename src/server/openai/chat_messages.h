// Converts the messages of a chat request to the form that chat templates expect.
#pragma once

#include <cstddef>

#include "base/json.h"
#include "base/work_meter.h"
#include "server/http/client.h"

namespace chorus::server {

inline constexpr size_t kMaxChatMessages = 4096;

// Throws ApiError (status 400) unless the value of the field "messages" is an array of 1 to kMaxChatMessages.
void checkMessages(const OrderedJson& messages);

// messages: an array of objects with a role. Joins text parts of a content with newlines, and parses the arguments of
// tool calls into objects (with parseRequestJson, its meter and its charge). Other members are unchanged, and a message
// without content stays without. Throws ApiError (status 400) that names the member, also for content parts that are
// not text.
OrderedJson normalizeMessages(OrderedJson messages, WorkMeter& meter, ClientCharge& memory);

}  // namespace chorus::server
