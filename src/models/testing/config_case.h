// A model's config.json and changes to it, for the tests of architectures.
#pragma once

#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>

#include "base/log.h"
#include "base/testing/error_of.h"
#include "models/architecture.h"

namespace chorus {

class ConfigCase {
 public:
  // architecture: a name that findArchitecture() knows.
  ConfigCase(std::string architecture, const char* json)
      : architecture_(std::move(architecture)), json_(Json::parse(json)) {}

  // Reads the config with the keys and values of `changes`, and checks that the architecture supports the result.
  ModelConfig read(const Json& changes = Json::object()) const {
    Json json = json_;
    if (!changes.is_null()) json.update(changes);
    const ModelConfig config = findArchitecture(architecture_).configFromHuggingFace(json, "c");
    architectureOf(config, "c");
    return config;
  }
  std::string refusal(const Json& changes) const {
    return errorOf([&] { read(changes); });
  }
  // The warnings that read() logs.
  std::string warnings(const Json& changes = Json::object()) const {
    std::ostringstream out;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(makeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
    read(changes);
    spdlog::set_default_logger(before);
    return out.str();
  }

 private:
  std::string architecture_;
  Json json_;
};

}  // namespace chorus
