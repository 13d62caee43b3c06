// The part of the catalog that one request may see. What it may not see, it cannot tell from what does not exist.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "server/access/api_keys.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

class ModelView {
 public:
  // The catalog must outlive the view. rights: of the request's key; null: the server has no keys, and everything may
  // be seen.
  ModelView(const ModelCatalog& models, std::shared_ptr<const KeyRights> rights)
      : models_(models), rights_(std::move(rights)) {}

  std::shared_ptr<const ServedModel> find(std::string_view name) const {
    auto model = models_.find(name);
    return model != nullptr && sees(*model) ? model : nullptr;
  }
  std::vector<std::shared_ptr<const ServedModel>> list() const {
    auto models = models_.list();
    std::erase_if(models, [this](const auto& model) { return !sees(*model); });
    return models;
  }
  bool isOfAdmin() const { return rights_ == nullptr || rights_->admin; }
  // The base model is visible to every key, because its name is the `root` of every adapter.
  const ServedModel& base() const { return models_.base(); }

 private:
  bool sees(const ServedModel& model) const {
    if (rights_ == nullptr) return true;
    return model.adapter_id ? rights_->mayUseAdapter(model.name) : rights_->base;
  }

  const ModelCatalog& models_;
  const std::shared_ptr<const KeyRights> rights_;
};

}  // namespace chorus::server
