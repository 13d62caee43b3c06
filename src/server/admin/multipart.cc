#include "server/admin/multipart.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr size_t kMaxBoundary = 70;  // RFC 2046
constexpr std::string_view kLineEnd = "\r\n";

[[noreturn]] void refuseForm(std::string_view why) {
  throw ApiError::invalid(fmt::format("The multipart/form-data body is not valid: {}.", why));
}

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

bool isBlank(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && isBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && isBlank(text.back())) text.remove_suffix(1);
  return text;
}

// The value and parameters of a header: "form-data; name="a"; filename="b"".
struct HeaderValue {
  std::string value;  // in lower case
  std::vector<std::pair<std::string, std::string>> parameters;

  const std::string* find(std::string_view name) const {
    const auto found = std::ranges::find(parameters, name, &std::pair<std::string, std::string>::first);
    return found == parameters.end() ? nullptr : &found->second;
  }
};

// Takes a quoted string from the front of the text, which begins with a quote. nullopt if it does not end.
std::optional<std::string> takeQuoted(std::string_view& text) {
  std::string value;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return value;
    }
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    value += text[i];
  }
  return std::nullopt;
}

std::optional<HeaderValue> parseHeader(std::string_view text) {
  HeaderValue header;
  const size_t first = std::min(text.find(';'), text.size());
  header.value = lowered(trimmed(text.substr(0, first)));
  text.remove_prefix(first);
  while (true) {
    text = trimmed(text);
    if (text.empty()) return header;
    if (text.front() != ';') return std::nullopt;
    text = trimmed(text.substr(1));
    if (text.empty()) return header;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    std::string name = lowered(trimmed(text.substr(0, equals)));
    text = trimmed(text.substr(equals + 1));
    std::optional<std::string> value;
    if (text.starts_with('"')) {
      value = takeQuoted(text);
    } else {
      const size_t end = std::min(text.find(';'), text.size());
      value = std::string(trimmed(text.substr(0, end)));
      text.remove_prefix(end);
    }
    if (!value || header.find(name) != nullptr) return std::nullopt;
    header.parameters.emplace_back(std::move(name), std::move(*value));
  }
}

std::string boundaryOf(std::string_view content_type) {
  const auto header = parseHeader(content_type);
  if (!header || header->value != "multipart/form-data") refuseForm("its Content-Type is not multipart/form-data");
  const std::string* boundary = header->find("boundary");
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("'()+_,-./:=? ").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (boundary == nullptr || boundary->empty() || boundary->size() > kMaxBoundary || boundary->ends_with(' ') ||
      !std::ranges::all_of(*boundary, allowed)) {
    refuseForm("its Content-Type names no valid boundary");
  }
  return *boundary;
}

// Reads the head of a part, without the empty line that ends it.
FormPart readHead(std::string_view head) {
  FormPart part;
  bool described = false;
  while (!head.empty()) {
    const size_t end = std::min(head.find(kLineEnd), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + kLineEnd.size(), head.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) refuseForm("a line of a part's head has no colon");
    const std::string name = lowered(line.substr(0, colon));
    const std::string_view value = line.substr(colon + 1);
    if (name == "content-transfer-encoding") {
      const std::string encoding = lowered(trimmed(value));
      if (encoding != "binary" && encoding != "8bit" && encoding != "7bit") refuseForm("a part is encoded");
    }
    if (name != "content-disposition") continue;
    const auto disposition = parseHeader(value);
    if (described || !disposition || disposition->value != "form-data" || disposition->find("name") == nullptr) {
      refuseForm("a part has no valid Content-Disposition with a name");
    }
    described = true;
    part.name = *disposition->find("name");
    if (const std::string* filename = disposition->find("filename")) part.filename = *filename;
  }
  if (!described) refuseForm("a part has no valid Content-Disposition with a name");
  return part;
}

// memmem() is linear whatever the bytes are, which std::string_view::find is not.
size_t findLinear(std::string_view text, std::string_view what) {
  const void* const at = memmem(text.data(), text.size(), what.data(), what.size());
  return at == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

}  // namespace

std::vector<FormPart> parseMultipart(std::string_view content_type, std::string_view body) {
  const std::string delimiter = "\r\n--" + boundaryOf(content_type);
  const std::string_view first = std::string_view(delimiter).substr(kLineEnd.size());
  if (!body.starts_with(first)) refuseForm("it does not begin with its boundary");
  body.remove_prefix(first.size());
  std::vector<FormPart> parts;
  while (true) {
    if (body.starts_with("--")) {
      body.remove_prefix(2);
      if (!body.empty() && body != kLineEnd) refuseForm("bytes follow its last boundary");
      return parts;
    }
    if (!body.starts_with(kLineEnd)) refuseForm("a boundary is not a line of its own");
    body.remove_prefix(kLineEnd.size());
    if (parts.size() == kMaxFormParts) refuseForm(fmt::format("it has more than {} parts", kMaxFormParts));
    const size_t head = body.substr(0, kMaxPartHead).find("\r\n\r\n");
    if (head == std::string_view::npos) refuseForm("a part's head does not end");
    FormPart part = readHead(body.substr(0, head));
    // The line end after the head also belongs to the delimiter if the part is empty.
    body.remove_prefix(head + kLineEnd.size());
    const size_t end = findLinear(body, delimiter);
    if (end == std::string_view::npos) refuseForm("it ends before its last boundary");
    if (end > 0) part.content = body.substr(kLineEnd.size(), end - kLineEnd.size());
    parts.push_back(std::move(part));
    body.remove_prefix(end + delimiter.size());
  }
}

}  // namespace chorus::server
