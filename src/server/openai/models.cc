#include "server/openai/models.h"

#include "base/sha256.h"
#include "server/errors.h"
#include "server/openai/generation_writer.h"
#include "server/work/charged_body.h"

namespace chorus::server {
namespace {

int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

OrderedJson permission(const ServedModel& model) {
  Sha256 hash;
  hash.update(model.name);
  OrderedJson json = OrderedJson::object();
  json["id"] = "modelperm-" + hash.hex().substr(0, 32);
  json["object"] = "model_permission";
  json["created"] = model.created;
  json["allow_create_engine"] = false;
  json["allow_sampling"] = true;
  json["allow_logprobs"] = true;
  json["allow_search_indices"] = false;
  json["allow_view"] = true;
  json["allow_fine_tuning"] = false;
  json["organization"] = "*";
  json["group"] = nullptr;
  json["is_blocking"] = false;
  return json;
}

// NIM's format: "root" is the base model, also for adapters, "parent" is always null, and the owner is "vllm". Gateways
// and agents read the context length from vLLM's "max_model_len".
OrderedJson describe(const ModelView& models, const ServedModel& model, int32_t max_model_len) {
  OrderedJson json = OrderedJson::object();
  json["id"] = model.name;
  json["object"] = "model";
  json["created"] = model.created;
  json["owned_by"] = "vllm";
  json["root"] = models.base().name;
  json["parent"] = nullptr;
  json["permission"] = OrderedJson::array({permission(model)});
  json["max_model_len"] = max_model_len;
  return json;
}

}  // namespace

std::string percentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hexDigit(text[i + 1]) : -1;
    const int low = high >= 0 ? hexDigit(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i];
    } else {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

HttpResponse listModels(const ModelView& models, int32_t max_model_len, const std::shared_ptr<Client>& client) {
  // Written model by model, because the JSON of thousands takes ten times the memory of its text.
  const auto listed = models.list();
  ChargedBody body(client);
  body.add(R"({"object":"list","data":)");
  body.addArray(listed.size(), [&](size_t i) { return toText(describe(models, *listed[i], max_model_len)); });
  body.add("}");
  return body.response();
}

HttpResponse describeModel(const ModelView& models, int32_t max_model_len, std::string_view encoded_name) {
  const std::string name = percentDecode(encoded_name);
  const auto model = models.find(name);
  if (!model) throw ApiError::modelNotFound(name);
  return {.body = toText(describe(models, *model, max_model_len))};
}

}  // namespace chorus::server
