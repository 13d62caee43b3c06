// The description of a route in /openapi.json.
#pragma once

#include <array>
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
  // The schemas of the answers to single methods, where they differ from `answer`.
  struct MethodAnswer {
    std::string_view method;  // in lower case
    std::string_view answer;
  };
  std::array<MethodAnswer, 2> method_answers = {};
  // Whether a POST may also be answered with status 202, when the work has only begun.
  bool answers_early = false;
  // The schema in answers.json of the JSON body of a POST whose fields are in no table, and whether there must be one.
  std::string_view body = {};
  bool needs_body = true;
  // Whether the request's body may be an uploaded adapter (server/admin/upload_body.h) besides an object with the path
  // of one.
  bool takes_files = false;
};

}  // namespace chorus::server
