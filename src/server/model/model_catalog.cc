#include "server/model/model_catalog.h"

namespace chorus::server {

ModelCatalog::ModelCatalog(ServedModel base) : base_(std::make_shared<const ServedModel>(std::move(base))) {}

std::shared_ptr<const ServedModel> ModelCatalog::find(std::string_view name) const {
  if (name == base_->name) return base_;
  std::lock_guard lock(mutex_);
  const auto it = adapters_.find(name);
  return it == adapters_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<const ServedModel>> ModelCatalog::list() const {
  std::vector<std::shared_ptr<const ServedModel>> models{base_};
  std::lock_guard lock(mutex_);
  for (const auto& [name, model] : adapters_) models.push_back(model);
  return models;
}

bool ModelCatalog::putAdapter(ServedModel adapter) {
  if (adapter.name == base_->name) return false;
  std::lock_guard lock(mutex_);
  const std::string name = adapter.name;
  adapters_.insert_or_assign(name, std::make_shared<const ServedModel>(std::move(adapter)));
  return true;
}

void ModelCatalog::removeAdapter(std::string_view name) {
  std::lock_guard lock(mutex_);
  if (const auto it = adapters_.find(name); it != adapters_.end()) adapters_.erase(it);
}

}  // namespace chorus::server
