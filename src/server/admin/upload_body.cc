#include "server/admin/upload_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "base/error.h"
#include "formats/safetensors.h"
#include "lora/peft_config.h"
#include "lora/peft_files.h"
#include "server/admin/multipart.h"
#include "server/client_message.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr std::string_view kMultipart = "multipart/form-data";
constexpr std::string_view kBinary = "application/octet-stream";

std::string typeOf(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
  return type;
}

// Parses the header, and returns the configuration in its metadata; empty if there is none.
std::string checkWeights(std::string_view weights) {
  const auto bytes = std::as_bytes(std::span(weights));
  try {
    if (Safetensors::headerBytes(bytes, bytes.size(), "the upload") > kMaxUploadHeader) {
      throw ApiError::invalid(
          fmt::format("The header of the safetensors file is larger than {} bytes.", kMaxUploadHeader));
    }
    const Safetensors file = Safetensors::parse(bytes, "the upload");
    const auto config = file.metadata().find(kPeftConfigFile);
    return config == file.metadata().end() ? std::string() : config->second;
  } catch (const Error& e) {
    throw ApiError::invalid(fmt::format("The weights are no valid safetensors file: {}", clientMessage(e.what())));
  }
}

UploadedAdapter fromParts(std::string_view content_type, std::string_view body) {
  UploadedAdapter adapter;
  bool has_config = false, has_weights = false;
  for (const FormPart& part : parseMultipart(content_type, body)) {
    const bool is_config = part.name == "config" || part.filename == kPeftConfigFile;
    const bool is_weights = !is_config && (part.name == "weights" || part.filename.ends_with(".safetensors"));
    if (!is_config && !is_weights) {
      throw ApiError::invalid(
          fmt::format("An upload has two parts, 'config' ({}) and 'weights' (a safetensors file); one of its parts is "
                      "neither.",
                      kPeftConfigFile));
    }
    bool& seen = is_config ? has_config : has_weights;
    if (seen) throw ApiError::invalid(fmt::format("The part '{}' comes twice.", is_config ? "config" : "weights"));
    seen = true;
    if (is_weights) {
      adapter.weights = part.content;
    } else if (part.content.size() <= kMaxPeftConfigBytes) {
      adapter.config = part.content;
    } else {
      throw ApiError::invalid(fmt::format("{} is larger than {} bytes.", kPeftConfigFile, kMaxPeftConfigBytes));
    }
  }
  if (!has_config || !has_weights) {
    throw ApiError::invalid(fmt::format("The upload has no part '{}'.", has_config ? "weights" : "config"));
  }
  return adapter;
}

}  // namespace

bool isUpload(std::string_view content_type) {
  const std::string type = typeOf(content_type);
  return type == kMultipart || type == kBinary;
}

UploadedAdapter parseUpload(std::string_view content_type, std::string_view body, WorkMeter& meter) {
  meter.charge(body.size());
  if (typeOf(content_type) == kMultipart) {
    UploadedAdapter adapter = fromParts(content_type, body);
    checkWeights(adapter.weights);
    return adapter;
  }
  UploadedAdapter adapter{.config = checkWeights(body), .weights = body};
  if (adapter.config.empty()) {
    throw ApiError::invalid(fmt::format(
        "The safetensors file has no '{0}' in its __metadata__; put the text of {0} there, or send both files as "
        "multipart/form-data.",
        kPeftConfigFile));
  }
  if (adapter.config.size() > kMaxPeftConfigBytes) {
    throw ApiError::invalid(fmt::format("{} is larger than {} bytes.", kPeftConfigFile, kMaxPeftConfigBytes));
  }
  return adapter;
}

}  // namespace chorus::server
