// Messages of a chat request, brought to the form that chat templates expect.
#pragma once

#include "base/json.h"

namespace chorus::server {

// An array of objects with a role. Content parts of type text are joined by newlines, arguments of tool calls become
// objects; other members stay. Throws ApiError with status 400 that names the member, for parts that are not text too.
OrderedJson normalizeMessages(const OrderedJson& messages);

}  // namespace chorus::server
