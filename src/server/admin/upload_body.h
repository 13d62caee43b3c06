// The body of an uploaded adapter.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/work_meter.h"

namespace chorus::server {

// Limit on the header of the safetensors file. Parsing it takes at most 16 times as much memory.
inline constexpr size_t kMaxUploadHeader = size_t{8} << 20;

// In the body.
struct UploadedAdapter {
  std::string config;        // the text of adapter_config.json
  std::string_view weights;  // a safetensors file, whose header is valid
};

// Whether a request with this Content-Type uploads an adapter.
bool isUpload(std::string_view content_type);

// Reads one of
//   multipart/form-data        the two files of a PEFT adapter: a part named "config" or with the filename
//                              adapter_config.json, and a part named "weights" or with a filename that ends with
//                              .safetensors
//   application/octet-stream   the safetensors file, with the text of adapter_config.json as the entry
//                              "adapter_config.json" of its __metadata__
// The weights are checked by the adapter's reader, not here. Throws ApiError (400), and WorkStopped.
UploadedAdapter parseUpload(std::string_view content_type, std::string_view body, WorkMeter& meter);

}  // namespace chorus::server
