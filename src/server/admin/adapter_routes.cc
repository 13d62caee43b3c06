#include "server/admin/adapter_routes.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/errors.h"
#include "server/openai/models.h"
#include "server/openai/request_json.h"

namespace chorus::server {
namespace {

AdapterDirectory& adaptersOf(const ApiContext& context) {
  if (context.adapters == nullptr) {
    throw ApiError::forbidden(
        "This server does not load, unload or list adapters by request; the operator can allow it with "
        "--enable_admin.",
        std::nullopt, "admin_not_enabled");
  }
  return *context.adapters;
}

OrderedJson takeBody(HttpRequest& request, WorkMeter& meter) {
  OrderedJson body = parseRequestJson(request.body, meter, request.memory);
  request.body.clear();
  return body;
}

// vLLM's name for the kind of error, which its clients compare.
ApiError invalidInput(std::string message, std::optional<std::string> param = std::nullopt,
                      std::optional<std::string> code = std::nullopt) {
  return ApiError(400, std::move(message), "InvalidUserInput", std::move(param), std::move(code));
}

AdapterDirectory::Loaded load(AdapterDirectory& adapters, const std::string& name, const std::string& path,
                              const char* path_field, bool replace) {
  try {
    return adapters.load(name, path, replace);
  } catch (const Error& e) {
    switch (e.code()) {
      case ErrorCode::kNotFound:
        throw ApiError(404, fmt::format("No adapter found for '{}': {}", name, clientMessage(e.what())),
                       "NotFoundError", path_field, "adapter_not_found");
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kUnsupported:
      case ErrorCode::kCorrupt:
      case ErrorCode::kTooLarge:
        throw invalidInput(fmt::format("The adapter '{}' cannot be served: {}", name, clientMessage(e.what())));
      default:
        throw;
    }
  }
}

void logLoaded(AdapterDirectory::Loaded how, const std::string& name) {
  using Loaded = AdapterDirectory::Loaded;
  log::info("adapter {} by request: {}",
            how == Loaded::kAdded      ? "loaded"
            : how == Loaded::kReplaced ? "replaced"
                                       : "left as it is",
            name);
}

void respondText(const std::shared_ptr<HttpExchange>& exchange, std::string text) {
  exchange->respond({.content_type = "text/plain; charset=utf-8", .body = std::move(text)});
}

void respondJson(const std::shared_ptr<HttpExchange>& exchange, const OrderedJson& json) {
  exchange->respond({.body = toText(json)});
}

bool reads(const HttpRequest& request) { return request.method == "GET" || request.method == "HEAD"; }

std::string_view placeName(executor::AdapterState::Place place) {
  using Place = executor::AdapterState::Place;
  switch (place) {
    case Place::kLOADING:
      return "loading";
    case Place::kHOST:
      return "host";
    case Place::kDEVICE:
      return "device";
    case Place::kDISK:
      break;
  }
  return "disk";
}

}  // namespace

void handleLoadLora(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter) {
  AdapterDirectory& adapters = adaptersOf(context);
  const OrderedJson body = takeBody(request, meter);
  const FieldReader fields(body);
  const std::string name = fields.string("lora_name").value_or("");
  const std::string path = fields.string("lora_path").value_or("");
  const bool in_place = fields.boolean("load_inplace").value_or(false);
  if (name.empty() || path.empty()) throw invalidInput("Both 'lora_name' and 'lora_path' must be provided.");
  const auto loaded = load(adapters, name, path, "lora_path", in_place);
  if (loaded == AdapterDirectory::Loaded::kExists) {
    throw invalidInput(
        fmt::format("The lora adapter '{}' has already been loaded. If you want to load the adapter in place, set "
                    "'load_inplace' to True.",
                    name),
        "lora_name", "adapter_already_loaded");
  }
  logLoaded(loaded, name);
  respondText(exchange, fmt::format("Success: LoRA adapter '{}' added successfully.", name));
}

void handleUnloadLora(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter) {
  AdapterDirectory& adapters = adaptersOf(context);
  const OrderedJson body = takeBody(request, meter);
  const std::string name = FieldReader(body).string("lora_name").value_or("");
  if (name.empty()) throw invalidInput("'lora_name' needs to be provided to unload a LoRA adapter.", "lora_name");
  if (!adapters.unload(name)) {
    throw ApiError(404, fmt::format("The lora adapter '{}' cannot be found.", name), "NotFoundError", "lora_name",
                   "adapter_not_found");
  }
  log::info("adapter unloaded by request: {}", name);
  respondText(exchange, fmt::format("Success: LoRA adapter '{}' removed successfully.", name));
}

void handleAdapters(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter) {
  AdapterDirectory& adapters = adaptersOf(context);
  if (reads(request)) {
    OrderedJson list = OrderedJson::array();
    for (const auto& model : context.models.list()) {
      if (model->adapter_id) list.push_back(OrderedJson{{"name", model->name}});
    }
    return respondJson(exchange, OrderedJson{{"adapters", std::move(list)}});
  }
  const OrderedJson body = takeBody(request, meter);
  const FieldReader fields(body);
  const std::string name = fields.string("name").value_or("");
  const std::string source = fields.string("src").value_or("");
  if (name.empty() || source.empty()) throw ApiError::invalid("Both 'name' and 'src' must be provided.");
  if (fields.boolean("pin").value_or(false)) {
    fields.refuse("pin", "must be false: adapters are kept by how recently they were used");
  }
  fields.boolean("preload");  // the first request for the adapter loads its weights
  const auto loaded = load(adapters, name, source, "src", false);
  if (loaded == AdapterDirectory::Loaded::kExists) {
    throw ApiError::invalid(fmt::format("The adapter '{}' is registered already.", name), "name",
                            "adapter_already_loaded");
  }
  logLoaded(loaded, name);
  respondJson(exchange, OrderedJson{{"status", fmt::format("Adapter {} registered", name)}});
}

void handleAdapter(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                   WorkMeter&) {
  AdapterDirectory& adapters = adaptersOf(context);
  const std::string name = percentDecode(std::string_view(request.path).substr(std::string_view("/adapters/").size()));
  if (!adapters.unload(name)) throw ApiError::modelNotFound(name);
  log::info("adapter unloaded by request: {}", name);
  respondJson(exchange, OrderedJson{{"status", fmt::format("Adapter {} unregistered", name)}});
}

void handleAdapterStates(const ApiContext& context, HttpRequest&, const std::shared_ptr<HttpExchange>& exchange,
                         WorkMeter&) {
  adaptersOf(context);
  std::map<executor::IdType, executor::AdapterState> states;
  for (executor::AdapterState& state : context.engine.adapterStates()) states[state.taskId] = std::move(state);
  OrderedJson data = OrderedJson::array();
  for (const auto& model : context.models.list()) {
    if (!model->adapter_id) continue;
    const executor::AdapterState& state = states[*model->adapter_id];
    OrderedJson json = OrderedJson::object();
    json["name"] = model->name;
    json["created"] = model->created;
    json["state"] = placeName(state.place);
    json["users"] = state.users;
    json["bytes"] = state.bytes;
    json["content_hash"] = state.contentHash.empty() ? OrderedJson() : OrderedJson(state.contentHash);
    data.push_back(std::move(json));
  }
  respondJson(exchange, OrderedJson{{"object", "list"}, {"data", std::move(data)}});
}

}  // namespace chorus::server
