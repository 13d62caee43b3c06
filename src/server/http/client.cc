#include "server/http/client.h"

#include <utility>

#include "base/sha256.h"

namespace chorus::server {
namespace {

uint64_t idOf(const std::string& name) {
  Sha256 hash;
  hash.update(name);
  return std::stoull(hash.hex().substr(0, 16), nullptr, 16);
}

MemoryAnswer refusedBy(const MemoryBudget& client, size_t bytes) {
  return bytes > client.limit() - client.used() ? MemoryAnswer::kClientFull : MemoryAnswer::kServerFull;
}

}  // namespace

Client::Client(std::string name, size_t bytes, std::shared_ptr<SizedBudgets> server)
    : name_(std::move(name)), id_(idOf(name_)), server_(std::move(server)), memory_(bytes, server_.get()) {}

ClientRegistry::ClientRegistry(const ClientMemoryLimits& limits)
    : limits_(limits), server_(std::make_shared<SizedBudgets>(limits.server, nullptr)) {}

std::shared_ptr<Client> ClientRegistry::find(const std::string& name) {
  {
    std::lock_guard lock(mutex_);
    const auto at = clients_.find(name);
    if (at != clients_.end()) {
      if (auto client = at->second.lock()) return client;
    }
  }
  // Created without holding mutex_, because destroying a Client calls forget(), which locks it.
  std::shared_ptr<Client> made(new Client(name, limits_.client, server_),
                               [registry = shared_from_this()](Client* ended) {
                                 registry->forget(ended);
                                 delete ended;
                               });
  std::shared_ptr<Client> known;
  std::lock_guard lock(mutex_);
  auto& place = clients_[name];
  known = place.lock();
  if (known) return known;
  place = made;
  return made;
}

void ClientRegistry::forget(const Client* client) {
  std::lock_guard lock(mutex_);
  const auto at = clients_.find(client->name());
  // find() may have created another client of this name between the last release and this call.
  if (at != clients_.end() && at->second.expired()) clients_.erase(at);
}

size_t ClientRegistry::used() const { return server_->small.used() + server_->large.used(); }

size_t ClientRegistry::size() const {
  std::lock_guard lock(mutex_);
  return clients_.size();
}

ClientCharge::ClientCharge(std::shared_ptr<Client> client) : client_(std::move(client)) {
  if (!client_) return;
  small_ = MemoryCharge(client_->memory().small);
  large_ = MemoryCharge(client_->memory().large);
}

ClientCharge& ClientCharge::operator=(ClientCharge&& other) noexcept {
  if (this == &other) return *this;
  // The charges are moved first: the old ones refer to the budgets of the old client.
  small_ = std::move(other.small_);
  large_ = std::move(other.large_);
  client_ = std::move(other.client_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

MemoryAnswer ClientCharge::resize(size_t bytes) {
  if (client_) {
    const size_t held = large_.bytes();
    if (bytes <= kSmall && small_.resize(bytes)) {
      large_.release();
    } else if (large_.resize(bytes)) {
      small_.release();
    } else {
      return refusedBy(client_->memory().large, bytes - held);
    }
  }
  bytes_ = bytes;
  return MemoryAnswer::kGranted;
}

void ClientCharge::release() {
  small_.release();
  large_.release();
  bytes_ = 0;
}

}  // namespace chorus::server
