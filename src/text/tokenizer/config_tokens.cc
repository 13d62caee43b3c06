#include "text/tokenizer/config_tokens.h"

#include "base/error.h"

namespace chorus {

int32_t decoderId(std::string_view key, const std::string& source) {
  if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string_view::npos) {
    fail(ErrorCode::kCorrupt, "{}: 'added_tokens_decoder' has a key that is not a token id", source);
  }
  return std::stoi(std::string(key));
}

std::optional<std::string> tokenContent(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

std::optional<std::string> namedToken(Json& config, const char* key, const std::string& fallback) {
  const auto it = config.find(key);
  if (it != config.end()) return tokenContent(*it);
  if (fallback.empty()) return std::nullopt;
  config[key] = fallback;
  return fallback;
}

Json templateProcessing(const std::vector<std::string>& before, const std::vector<std::string>& after,
                        const Json& vocab) {
  Json single = Json::array(), special = Json::object();
  const auto add = [&](const std::string& token) {
    single.push_back({{"SpecialToken", {{"id", token}}}});
    special[token] = {{"ids", Json::array({vocab.at(token)})}};
  };
  for (const std::string& token : before) add(token);
  single.push_back({{"Sequence", {{"id", "A"}}}});
  for (const std::string& token : after) add(token);
  return {{"type", "TemplateProcessing"}, {"single", std::move(single)}, {"special_tokens", std::move(special)}};
}

}  // namespace chorus
