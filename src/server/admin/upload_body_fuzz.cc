// An upload is either read or refused with an ApiError of status 400 whose body is JSON. The input's first line is the
// Content-Type, the rest is the body.
// parses: src/server/admin/upload_body.cc src/server/admin/multipart.cc
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "fuzz/fuzz_target.h"
#include "server/admin/multipart.h"
#include "server/admin/upload_body.h"
#include "server/errors.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

bool isIn(std::string_view part, std::string_view body) {
  return part.empty() || (part.data() >= body.data() && part.data() + part.size() <= body.data() + body.size());
}

template <typename Read>
void readOrRefuse(Read read) {
  try {
    read();
  } catch (const chorus::server::ApiError& e) {
    check(e.status() == 400 && chorus::Json::parse(e.body()).contains("error"));
  }
}

}  // namespace

// Two refusals are formatted and thrown. The time limit also allows for cache misses that other programs cause.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 1000, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  using namespace chorus::server;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string_view type = input.substr(0, line);
  const std::string_view body = input.substr(std::min(line + 1, input.size()));
  readOrRefuse([&] {
    const auto parts = parseMultipart(type, body);
    check(parts.size() <= kMaxFormParts);
    std::string_view before;
    for (const FormPart& part : parts) {
      check(isIn(part.content, body) &&
            (before.empty() || part.content.empty() || part.content.data() > before.data()));
      before = part.content;
    }
  });
  readOrRefuse([&] {
    WorkMeter meter;
    const UploadedAdapter adapter = parseUpload(type, body, meter);
    check(isIn(adapter.weights, body) && adapter.weights.size() >= 8 && meter.spent() >= body.size());
  });
}
