#include "server/model/model_catalog.h"

#include <utility>

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

size_t ModelCatalog::size() const {
  std::lock_guard lock(mutex_);
  return adapters_.size() + 1;
}

bool ModelCatalog::putAdapter(ServedModel adapter) {
  if (adapter.name == base_->name) return false;
  const std::string name = adapter.name;
  const bool has_text = adapter.text != nullptr;
  std::vector<TextWaits::Then> waiting;
  {
    std::lock_guard lock(mutex_);
    adapters_.insert_or_assign(name, std::make_shared<const ServedModel>(std::move(adapter)));
    if (has_text) waiting = waits_.takeAllOf(name);
  }
  for (const auto& then : waiting) then();
  return true;
}

void ModelCatalog::removeAdapter(std::string_view name) {
  std::vector<TextWaits::Then> waiting;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = adapters_.find(name); it != adapters_.end()) adapters_.erase(it);
    waiting = waits_.takeAllOf(name);
  }
  for (const auto& then : waiting) then();
}

std::optional<TextWaits::Id> ModelCatalog::waitForText(const std::string& name, TextWaits::Then then) {
  std::lock_guard lock(mutex_);
  const auto it = adapters_.find(name);
  if (waits_ended_ || it == adapters_.end() || it->second->text != nullptr) return std::nullopt;
  return waits_.add(name, std::move(then), TextWaits::Clock::now());
}

void ModelCatalog::cancelWait(TextWaits::Id id) {
  TextWaits::Then dropped;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  dropped = waits_.take(id);
}

void ModelCatalog::endWaitsBefore(TextWaits::Clock::time_point time) {
  std::vector<TextWaits::Then> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = waits_.takeOlderThan(time);
  }
  for (const auto& then : waiting) then();
}

void ModelCatalog::endWaits() {
  std::vector<TextWaits::Then> waiting;
  {
    std::lock_guard lock(mutex_);
    waits_ended_ = true;
    waiting = waits_.takeAll();
  }
  for (const auto& then : waiting) then();
}

std::vector<std::string> ModelCatalog::awaited() const {
  std::lock_guard lock(mutex_);
  return waits_.adapters();
}

}  // namespace chorus::server
