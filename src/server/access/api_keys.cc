#include "server/access/api_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "formats/yaml.h"
#include "server/access/token_bucket.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr size_t kMaxKeys = 65536;
constexpr size_t kMaxKeyBytes = 4096;
// Entries of adapters whose name is a pattern: each request is compared with all of them.
constexpr size_t kMaxPatterns = 1024;

std::string digestOf(std::string_view key) {
  Sha256 hash;
  hash.update(key);
  return hash.hex();
}

void checkLength(std::string_view key, std::string_view source) {
  if (key.size() >= ApiKeys::kMinKeyBytes && key.size() <= kMaxKeyBytes) return;
  fail(ErrorCode::kInvalidArgument, "{}: a key must have {} to {} characters", source, ApiKeys::kMinKeyBytes,
       kMaxKeyBytes);
}

// '*' in the pattern stands for any characters. Takes at most pattern x name steps.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Reads the fields of one entry of a list and refuses others.
class Entry {
 public:
  Entry(const Json& object, std::string place, std::initializer_list<std::string_view> known)
      : object_(object), place_(std::move(place)) {
    if (!object.is_object()) refuse(fmt::format("expected a mapping with {}", fmt::join(known, ", ")));
    // The field is not named: a key that stands in its place must not get into the log.
    for (const auto& [field, value] : object.items()) {
      if (std::ranges::find(known, std::string_view(field)) == known.end())
        refuse(fmt::format("a field other than {}", fmt::join(known, ", ")));
    }
  }

  std::string text(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end() || found->is_null()) return {};
    if (!found->is_string()) refuse(fmt::format("'{}' must be a text; put it in quotes", field));
    return found->get<std::string>();
  }
  bool flag(const char* field, bool fallback) const {
    const auto found = object_.find(field);
    if (found == object_.end() || found->is_null()) return fallback;
    if (!found->is_boolean()) refuse(fmt::format("'{}' must be true or false", field));
    return found->get<bool>();
  }

  std::string digest() const {
    const std::string key = text("key");
    std::string digest = text("key_sha256");
    if (key.empty() == digest.empty()) refuse("give either 'key' or 'key_sha256'");
    if (!key.empty()) {
      checkLength(key, place_);
      return digestOf(key);
    }
    std::ranges::transform(digest, digest.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool is_hex = digest.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (digest.size() != 64 || !is_hex) refuse("'key_sha256' must have 64 hexadecimal digits");
    return digest;
  }

  std::string name() const {
    std::string name = text("name");
    if (name.empty() || name.size() > 255) refuse("'name' must have 1 to 255 characters");
    return name;
  }

  LimitSettings limits() const {
    LimitSettings limits;
    const auto found = object_.find("limits");
    if (found == object_.end() || found->is_null()) return limits;
    const Entry fields(*found, place_ + ".limits", {"requests_per_minute", "tokens_per_minute", "concurrent_requests"});
    limits.requests_per_minute = fields.limit("requests_per_minute");
    limits.tokens_per_minute = fields.limit("tokens_per_minute");
    limits.concurrent_requests = fields.limit("concurrent_requests");
    return limits;
  }

  int32_t weight() const {
    constexpr int64_t kMost = 1000;
    const auto found = object_.find("weight");
    if (found == object_.end() || found->is_null()) return 1;
    const bool fits = found->is_number_integer() && found->get<int64_t>() >= 1 && found->get<int64_t>() <= kMost;
    if (!fits) refuse(fmt::format("'weight' must be a whole number from 1 to {}", kMost));
    return found->get<int32_t>();
  }

  KeyRights rights() const {
    KeyRights rights;
    rights.name = name();
    rights.limits = limits();
    rights.weight = weight();
    rights.admin = flag("admin", false);
    rights.base = flag("base", true);
    const auto adapters = object_.find("adapters");
    rights.all_adapters = adapters == object_.end() || adapters->is_null();
    if (rights.all_adapters) return rights;
    if (!adapters->is_array()) refuse("'adapters' must be a list of names");
    for (const Json& adapter : *adapters) {
      if (!adapter.is_string()) refuse("'adapters' must be a list of names");
      rights.adapters.push_back(adapter.get<std::string>());
    }
    return rights;
  }

  std::optional<int64_t> limit(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end() || found->is_null()) return std::nullopt;
    // A number above 2^63 becomes negative.
    const bool fits =
        found->is_number_integer() && found->get<int64_t>() >= 0 && found->get<int64_t>() <= TokenBucket::kMaxPerMinute;
    if (!fits) refuse(fmt::format("'{}' must be a whole number from 0 to {}", field, TokenBucket::kMaxPerMinute));
    return found->get<int64_t>();
  }

  [[noreturn]] void refuse(std::string_view why) const { fail(ErrorCode::kInvalidArgument, "{}: {}", place_, why); }

 private:
  const Json& object_;
  std::string place_;
};

// The key in the request's headers; empty without one.
std::string_view presentedKey(const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = authorization.size() > kScheme.size() &&
                      std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme,
                                         [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
  std::string_view key = bearer ? authorization.substr(kScheme.size()) : request.header("x-api-key");
  while (key.starts_with(' ')) key.remove_prefix(1);
  return key;
}

}  // namespace

bool KeyRights::mayUseAdapter(std::string_view adapter) const {
  if (all_adapters) return true;
  return std::ranges::any_of(adapters, [&](const std::string& pattern) { return matches(pattern, adapter); });
}

ApiKeys ApiKeys::parse(std::string_view text, std::string_view source) {
  const Json file = parseYaml(text, source);
  const bool has_adapters = file.is_object() && file.contains("adapters");
  const bool has_keys = file.is_object() && file.contains("keys") && file.size() == (has_adapters ? 2U : 1U);
  const Json* list = has_keys ? &file["keys"] : nullptr;
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxKeys) {
    fail(ErrorCode::kInvalidArgument,
         "{}: expected 'keys:' with a list of 1 to {} keys, and nothing else but 'adapters:'", source, kMaxKeys);
  }
  ApiKeys keys;
  std::vector<std::string> names, digests;
  for (size_t i = 0; i < list->size(); ++i) {
    const Entry entry((*list)[i], fmt::format("{}: keys[{}]", source, i),
                      {"name", "key", "key_sha256", "adapters", "base", "admin", "limits", "weight"});
    auto rights = std::make_shared<const KeyRights>(entry.rights());
    names.push_back(rights->name);
    digests.push_back(entry.digest());
    keys.keys_.emplace(digests.back(), std::move(rights));
  }
  for (auto* values : {&names, &digests}) {
    std::ranges::sort(*values);
    const auto twice = std::ranges::adjacent_find(*values);
    if (twice == values->end()) continue;
    fail(ErrorCode::kInvalidArgument, "{}: {} is there twice", source,
         values == &names ? fmt::format("the name '{}'", *twice) : "a key");
  }
  if (has_adapters) keys.readAdapters(file["adapters"], source);
  return keys;
}

void ApiKeys::readAdapters(const Json& list, std::string_view source) {
  if (!list.is_array() || list.size() > kMaxKeys) {
    fail(ErrorCode::kInvalidArgument, "{}: 'adapters' must be a list of at most {} adapters", source, kMaxKeys);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const Entry entry(list[i], fmt::format("{}: adapters[{}]", source, i), {"name", "limits", "weight"});
    std::string name = entry.name();
    const AdapterSettings settings{.limits = entry.limits(), .weight = entry.weight()};
    limits_adapters_ = limits_adapters_ || settings.limits.any();
    if (name.find('*') != std::string::npos) {
      if (adapters_by_pattern_.size() == kMaxPatterns) {
        entry.refuse(fmt::format("more than {} names with '*'", kMaxPatterns));
      }
      adapters_by_pattern_.emplace_back(std::move(name), settings);
    } else if (!adapters_by_name_.emplace(name, settings).second) {
      entry.refuse(fmt::format("the adapter '{}' is there twice", name));
    }
  }
}

ApiKeys::AdapterSettings ApiKeys::settingsOf(const std::string& adapter) const {
  const auto named = adapters_by_name_.find(adapter);
  if (named != adapters_by_name_.end()) return named->second;
  for (const auto& [pattern, settings] : adapters_by_pattern_) {
    if (matches(pattern, adapter)) return settings;
  }
  return {};
}

ApiKeys ApiKeys::single(std::string_view key) {
  checkLength(key, "--api_key");
  ApiKeys keys;
  keys.keys_.emplace(digestOf(key),
                     std::make_shared<const KeyRights>(KeyRights{.name = "api_key", .admin = true, .adapters = {}}));
  return keys;
}

std::shared_ptr<const KeyRights> ApiKeys::authenticate(const HttpRequest& request) const {
  const std::string_view presented = presentedKey(request);
  if (presented.empty()) throw ApiError::unauthenticated("You didn't provide an API key.");
  // How long the search takes depends on the digest alone, from which nobody can tell a key.
  const auto found = keys_.find(digestOf(presented));
  if (found == keys_.end()) throw ApiError::unauthenticated("Incorrect API key provided.");
  return found->second;
}

}  // namespace chorus::server
