// The description of a route in /openapi.json.
#pragma once

#include <optional>
#include <string_view>

#include "server/openai/request_fields.h"

namespace chorus::server {

struct RouteDescription {
  std::string_view summary;  // one line
  // The fields of its JSON body, from which the schema of the request is made.
  std::optional<FieldOwner> request = {};
  std::string_view answer_type = "application/json";
  // The schema of a successful answer, and of the data of each event if it is streamed: names of schemas in
  // answers.json. Empty: any object; no stream.
  std::string_view answer = {};
  std::string_view event = {};
  // Its body may be an uploaded adapter (server/admin/upload_body.h), or an object with the path of one.
  bool takes_files = false;
};

}  // namespace chorus::server
