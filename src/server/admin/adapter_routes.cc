#include "server/admin/adapter_routes.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/admin/lifecycle_routes.h"
#include "server/client_message.h"
#include "server/errors.h"
#include "server/openai/models.h"
#include "server/openai/request_json.h"
#include "server/work/charged_body.h"

namespace chorus::server {
namespace {

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

// The names of the fields of a request that loads an adapter.
struct LoadFields {
  const char* name;
  const char* path;
};

AdapterDirectory::Loaded load(AdapterDirectory& adapters, const std::string& name, const std::string& path,
                              const LoadFields& fields, bool replace, bool read_values, WorkMeter& meter) {
  const char* field = fields.name;
  try {
    adapters.checkName(name);
    field = fields.path;
    return adapters.load(name, path, replace, read_values, &meter);
  } catch (const WorkStopped& e) {
    throw readingStopped(e);
  } catch (const TooManyAdapters& e) {
    throw tooManyAdapters(name, e);
  } catch (const Error& e) {
    switch (e.code()) {
      case ErrorCode::kNotFound:
        throw ApiError(404, fmt::format("No adapter found for '{}': {}", name, clientMessage(e.what())),
                       "NotFoundError", field, "adapter_not_found");
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kUnsupported:
      case ErrorCode::kCorrupt:
      case ErrorCode::kTooLarge:
        throw invalidInput(fmt::format("The adapter '{}' cannot be served: {}", name, clientMessage(e.what())), field,
                           "adapter_refused");
      case ErrorCode::kConflict:
        throw ApiError::conflict(fmt::format("The adapter '{}': {}.", name, clientMessage(e.what())));
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
  const auto loaded =
      load(adapters, name, path, {"lora_name", "lora_path"}, in_place, /*read_values=*/true, meter);  // as vLLM
  if (loaded == AdapterDirectory::Loaded::kExists) {
    throw invalidInput(
        fmt::format("The lora adapter '{}' has already been loaded. If you want to load the adapter in place, set "
                    "'load_inplace' to True.",
                    name),
        "lora_name", "adapter_already_loaded");
  }
  logLoaded(loaded, name);
  // The first request for it finds it loaded, or joins the load.
  if (const auto model = context.models.find(name)) context.engine.loadAdapter(*model->adapter_id, false, nullptr);
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
  if (request.reads()) {
    chargeList(meter, context.models);
    auto models = context.models.list();
    std::erase_if(models, [](const auto& model) { return !model->adapter_id; });
    ChargedBody list(request.client);
    list.add(R"({"adapters":)");
    list.addArray(models.size(), [&](size_t i) { return toText(OrderedJson{{"name", models[i]->name}}); });
    list.add("}");
    return exchange->respond(list.response());
  }
  const OrderedJson body = takeBody(request, meter);
  const FieldReader fields(body);
  const std::string name = fields.string("name").value_or("");
  const std::string source = fields.string("src").value_or("");
  if (name.empty() || source.empty()) throw ApiError::invalid("Both 'name' and 'src' must be provided.");
  const bool pin = fields.boolean("pin").value_or(false);
  const bool preload = fields.boolean("preload").value_or(false);
  const auto loaded = load(adapters, name, source, {"name", "src"}, false, false, meter);
  if (loaded == AdapterDirectory::Loaded::kExists) {
    throw ApiError::invalid(fmt::format("The adapter '{}' is registered already.", name), "name",
                            "adapter_already_loaded");
  }
  logLoaded(loaded, name);
  const OrderedJson registered{{"status", fmt::format("Adapter {} registered", name)}};
  const auto model = context.models.find(name);
  if (model == nullptr || !(pin || preload)) return respondJson(exchange, registered);
  loadThenAnswer(context, request, exchange, *model, pin, "name", {.body = toText(registered)});
}

void handleAdapter(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                   WorkMeter&) {
  AdapterDirectory& adapters = adaptersOf(context);
  const std::string name = percentDecode(std::string_view(request.path).substr(std::string_view("/adapters/").size()));
  if (!adapters.unload(name)) throw ApiError::modelNotFound(name);
  log::info("adapter unloaded by request: {}", name);
  respondJson(exchange, OrderedJson{{"status", fmt::format("Adapter {} unregistered", name)}});
}

}  // namespace chorus::server
