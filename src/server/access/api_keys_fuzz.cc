// Any bytes are either a list of keys or refused with an Error. A list has at most one key for every few bytes of its
// text, and a request gets no more rights than its file states.
// parses: src/server/access/api_keys.cc
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "fuzz/fuzz_target.h"
#include "server/access/api_keys.h"
#include "server/errors.h"

// yaml-cpp compiles its patterns when it first runs, and keeps a hundred bytes for each of up to 1024 characters of a
// line until it knows whether they are a key.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 4000, .bytes = 512 << 10};

namespace {

using chorus::server::ApiError;
using chorus::server::ApiKeys;
using chorus::server::HttpRequest;

void check(bool holds) {
  if (!holds) std::abort();
}

HttpRequest with(std::string header, std::string value) {
  HttpRequest request;
  request.headers.emplace_back(std::move(header), std::move(value));
  return request;
}

// Whether the request is let in; a refusal must be status 401.
bool passes(const ApiKeys& keys, const HttpRequest& request) {
  try {
    const auto rights = keys.authenticate(request);
    check(rights != nullptr && !rights->name.empty());
    check(rights->mayUseAdapter("some-adapter") || !rights->all_adapters);
    return true;
  } catch (const ApiError& refusal) {
    check(refusal.status() == 401);
    return false;
  }
}

}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ApiKeys keys = ApiKeys::parse(text, "fuzz");
    check(keys.size() >= 1 && keys.size() <= size / 8);
    check(!passes(keys, HttpRequest()));
    check(!passes(keys, with("authorization", "Bearer ")));
    check(!passes(keys, with("x-api-key", "")));
    // The corpus has this key once as itself and once as its digest.
    const bool bearer = passes(keys, with("authorization", "Bearer known-key"));
    check(bearer == passes(keys, with("x-api-key", "known-key")));
    check(!passes(keys, with("authorization", "Basic known-key")));
    // The corpus names this adapter.
    const auto limits = keys.limitsOfAdapter("b");
    check(keys.limitAdapters() || !limits.any());
    for (const auto& limit : {limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests})
      check(limit.value_or(0) >= 0 && limit.value_or(0) <= 1'000'000'000);
  } catch (const Error&) {
  }
  // A header of any bytes is no key of this list, unless it has the key in it.
  static const ApiKeys one = ApiKeys::single("the-only-key");
  for (const char* name : {"authorization", "x-api-key"}) {
    const bool passed = passes(one, with(name, std::string(text)));
    check(!passed || text.find("the-only-key") != std::string_view::npos);
  }
}
