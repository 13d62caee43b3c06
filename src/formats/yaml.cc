#include "formats/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace chorus {
namespace {

constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

template <typename T>
std::optional<T> yamlNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool isOneOfTexts(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

Json plainYamlScalar(const std::string& text) {
  if (isOneOfTexts(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (isOneOfTexts(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (isOneOfTexts(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return false;
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  // from_chars also accepts "inf", "nan" and words that begin with them, which are strings in YAML.
  if (digits.find_first_not_of("0123456789+-.eE") != std::string_view::npos ||
      (digits.size() < text.size() && digits.find_first_of("+-") == 0)) {
    return text;
  }
  if (const auto whole = yamlNumber<int64_t>(digits)) return *whole;
  if (const auto real = yamlNumber<double>(digits); real && std::isfinite(*real)) return *real;
  return text;
}

class YamlBuilder : public YAML::EventHandler {
 public:
  YamlBuilder(std::string_view source, YamlKeyLines& lines) : source_(source), lines_(lines) {}

  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (std::exchange(has_document_, true)) refuse(ErrorCode::kCorrupt, mark, "a second document begins here");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { put(mark, nullptr); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(ErrorCode::kUnsupported, mark, "an alias (*name) is not supported; write its value instead");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    // yaml-cpp may end a text inside a character, and a Json value must hold whole ones.
    if (!isUtf8(value)) refuse(ErrorCode::kCorrupt, mark, "a text is cut inside a character");
    if (frames_.empty() || !frames_.back().awaitsKey()) {
      put(mark, typed(mark, tag, value));
    } else {
      putKey(mark, value);
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    begin(mark, tag, "seq", Json::array());
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    begin(mark, tag, "map", Json::object());
  }
  void OnMapEnd() override { end(); }

  [[noreturn]] void refuse(ErrorCode code, const YAML::Mark& mark, std::string_view reason) const {
    fail(code, "{}: line {}, column {}: {}", source_, mark.line + 1, mark.column + 1, reason);
  }

 private:
  struct Frame {
    Json value;
    std::optional<std::string> key;  // of the map's value that comes next
    bool awaitsKey() const { return value.is_object() && !key; }
  };

  Json typed(const YAML::Mark& mark, std::string_view tag, const std::string& value) const {
    if (tag == "!") return value;  // quoted
    if (tag.empty() || tag == "?") return plainYamlScalar(value);
    if (tag.starts_with(kCoreTag)) {
      tag.remove_prefix(kCoreTag.size());
      if (tag == "str") return value;
      if (isOneOfTexts(tag, {"int", "float", "bool", "null"})) return plainYamlScalar(value);
    }
    refuse(ErrorCode::kUnsupported, mark, "a tag that is not of YAML's own types is not supported");
  }

  void putKey(const YAML::Mark& mark, const std::string& key) {
    Frame& map = frames_.back();
    if (map.value.contains(key)) refuse(ErrorCode::kCorrupt, mark, fmt::format("the key '{}' occurs twice", key));
    map.key = key;
    if (frames_.size() == 1) lines_[key] = mark.line + 1;
  }

  void put(const YAML::Mark& mark, Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.awaitsKey()) {
      if (!value.is_null()) refuse(ErrorCode::kUnsupported, mark, "a key must be a scalar");
      return putKey(mark, "null");
    }
    if (frame.value.is_array()) {
      frame.value.push_back(std::move(value));
    } else {
      frame.value.emplace(*std::exchange(frame.key, std::nullopt), std::move(value));
    }
  }

  void begin(const YAML::Mark& mark, std::string_view tag, std::string_view type, Json empty) {
    if (std::ssize(frames_) >= kMaxYamlDepth) {
      refuse(ErrorCode::kCorrupt, mark, fmt::format("nesting is deeper than {}", kMaxYamlDepth));
    }
    if (!frames_.empty() && frames_.back().awaitsKey()) {
      refuse(ErrorCode::kUnsupported, mark, "a key must be a scalar");
    }
    const bool is_plain = tag.empty() || tag == "?" || tag == "!" || tag == fmt::format("{}{}", kCoreTag, type);
    if (!is_plain) refuse(ErrorCode::kUnsupported, mark, "a tag that is not of YAML's own types is not supported");
    frames_.push_back({std::move(empty), std::nullopt});
  }

  void end() {
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    put(YAML::Mark(), std::move(value));
  }

  std::string source_;
  YamlKeyLines& lines_;
  Json root_;
  std::vector<Frame> frames_;
  bool has_document_ = false;
};

}  // namespace

Json parseYaml(std::string_view text, std::string_view source) {
  YamlKeyLines lines;
  return parseYaml(text, source, lines);
}

Json parseYaml(std::string_view text, std::string_view source, YamlKeyLines& lines) {
  if (text.size() > kMaxYamlBytes) {
    fail(ErrorCode::kCorrupt, "{}: has {} bytes, more than {}", source, text.size(), kMaxYamlBytes);
  }
  // yaml-cpp passes other bytes on, and a Json value must hold text.
  if (!isUtf8(text)) fail(ErrorCode::kCorrupt, "{}: is not UTF-8 text", source);
  lines.clear();
  YamlBuilder builder(source, lines);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    builder.refuse(ErrorCode::kCorrupt, error.mark, error.msg);
  }
  return builder.take();
}

}  // namespace chorus
