#include "server/access/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "formats/yaml.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr size_t kMaxKeys = 65536;
constexpr size_t kMaxKeyBytes = 4096;

std::string digestOf(std::string_view key) {
  Sha256 hash;
  hash.update(key);
  return hash.hex();
}

// Takes time that depends on the lengths only.
bool equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return different == 0;
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

// Reads the fields of one entry of the list and refuses others.
class Entry {
 public:
  Entry(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object.is_object()) refuse("expected a mapping with 'name' and 'key'");
    constexpr std::string_view kKnown[] = {"name", "key", "key_sha256", "adapters", "base", "admin"};
    // The field is not named: a key that stands in its place must not get into the log.
    for (const auto& [field, value] : object.items()) {
      if (std::ranges::find(kKnown, field) == std::end(kKnown))
        refuse("a field other than name, key, key_sha256, adapters, base and admin");
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

  KeyRights rights() const {
    KeyRights rights;
    rights.name = text("name");
    if (rights.name.empty() || rights.name.size() > 255) refuse("'name' must have 1 to 255 characters");
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
  const Json* list = file.is_object() && file.size() == 1 && file.contains("keys") ? &file["keys"] : nullptr;
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxKeys) {
    fail(ErrorCode::kInvalidArgument, "{}: expected 'keys:' with a list of 1 to {} keys, and nothing else", source,
         kMaxKeys);
  }
  ApiKeys keys;
  std::vector<std::string> names, digests;
  for (size_t i = 0; i < list->size(); ++i) {
    const Entry entry((*list)[i], fmt::format("{}: keys[{}]", source, i));
    auto rights = std::make_shared<const KeyRights>(entry.rights());
    names.push_back(rights->name);
    digests.push_back(entry.digest());
    keys.keys_.push_back({digests.back(), std::move(rights)});
  }
  for (auto* values : {&names, &digests}) {
    std::ranges::sort(*values);
    const auto twice = std::ranges::adjacent_find(*values);
    if (twice == values->end()) continue;
    fail(ErrorCode::kInvalidArgument, "{}: {} is there twice", source,
         values == &names ? fmt::format("the name '{}'", *twice) : "a key");
  }
  return keys;
}

ApiKeys ApiKeys::single(std::string_view key) {
  checkLength(key, "--api_key");
  ApiKeys keys;
  keys.keys_.push_back(
      {digestOf(key), std::make_shared<const KeyRights>(KeyRights{.name = "api_key", .admin = true, .adapters = {}})});
  return keys;
}

std::shared_ptr<const KeyRights> ApiKeys::authenticate(const HttpRequest& request) const {
  const std::string_view presented = presentedKey(request);
  if (presented.empty()) throw ApiError::unauthenticated("You didn't provide an API key.");
  const std::string digest = digestOf(presented);
  std::shared_ptr<const KeyRights> found;
  for (const Key& key : keys_) {
    if (equal(key.digest, digest)) found = key.rights;
  }
  if (found == nullptr) throw ApiError::unauthenticated("Incorrect API key provided.");
  return found;
}

}  // namespace chorus::server
