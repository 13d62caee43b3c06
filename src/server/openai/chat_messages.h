// Messages of a chat request, brought to the form that chat templates expect.
#pragma once

#include "base/json.h"
#include "base/work_meter.h"
#include "server/http/client.h"

namespace chorus::server {

// An array of objects with a role. Content parts of type text are joined by newlines, arguments of tool calls become
// objects; other members stay, and a message without content remains without. Throws ApiError with status 400 that
// names the member, for parts that are not text too. Arguments are parsed as parseRequestJson does, with its meter and
// charge.
OrderedJson normalizeMessages(OrderedJson messages, WorkMeter& meter, ClientCharge& memory);

}  // namespace chorus::server
