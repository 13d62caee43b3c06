// Clients as the server distinguishes them, and the memory that each of them may make the server hold.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/memory_budget.h"

namespace chorus::server {

// Bytes. Everything up to ClientCharge::kSmall is taken from a quarter that larger things cannot use: large bodies and
// answers never leave a small request without memory.
struct ClientMemoryLimits {
  size_t server = size_t{256} << 20;
  size_t client = size_t{64} << 20;  // one client's part of it
};

// The budgets of one server or of one client.
struct SizedBudgets {
  SizedBudgets(size_t bytes, SizedBudgets* parent)
      : small(bytes / 4, parent != nullptr ? &parent->small : nullptr),
        large(bytes - bytes / 4, parent != nullptr ? &parent->large : nullptr) {}
  MemoryBudget small, large;
};

// One client. Keys can take the place of addresses where names are made (client_address.h). Thread-safe.
class Client {
 public:
  Client(std::string name, size_t bytes, std::shared_ptr<SizedBudgets> server);

  const std::string& name() const { return name_; }
  // Depends on the name alone; different for different names.
  uint64_t id() const { return id_; }
  SizedBudgets& memory() { return memory_; }

 private:
  std::string name_;
  uint64_t id_;
  std::shared_ptr<SizedBudgets> server_;
  SizedBudgets memory_;
};

// The clients that have a connection, a request or an answer. Thread-safe.
class ClientRegistry : public std::enable_shared_from_this<ClientRegistry> {
 public:
  explicit ClientRegistry(const ClientMemoryLimits& limits);
  // The client of that name, which is forgotten when nobody holds it any more.
  std::shared_ptr<Client> find(const std::string& name);
  // Bytes that all clients hold.
  size_t used() const;
  size_t size() const;

 private:
  void forget(const Client* client);

  ClientMemoryLimits limits_;
  std::shared_ptr<SizedBudgets> server_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<Client>> clients_;
};

enum class MemoryAnswer {
  kGranted,
  kClientFull,  // the client holds too much: status 429
  kServerFull,  // all clients together do: status 503
};

// What one body, parsed request or answer holds of its client's memory. Used by one thread at a time; without a client
// it counts and grants everything.
class ClientCharge {
 public:
  static constexpr size_t kSmall = size_t{64} << 10;

  ClientCharge() = default;
  explicit ClientCharge(std::shared_ptr<Client> client);
  ClientCharge(ClientCharge&& other) noexcept { *this = std::move(other); }
  ClientCharge& operator=(ClientCharge&& other) noexcept;

  // When the answer is not kGranted, what was held stays held.
  MemoryAnswer resize(size_t bytes);
  MemoryAnswer add(size_t bytes) { return resize(bytes_ + bytes); }
  void release();
  size_t bytes() const { return bytes_; }
  const std::shared_ptr<Client>& client() const { return client_; }

 private:
  std::shared_ptr<Client> client_;  // outlives the charges
  MemoryCharge small_, large_;
  size_t bytes_ = 0;
};

}  // namespace chorus::server
