// Clients of the HTTP server, and limits on the memory that the server holds for each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/memory_budget.h"

namespace chorus::server {

// Limits in bytes. A quarter of each limit is reserved for charges of at most ClientCharge::kSmall bytes, so that large
// bodies and answers never leave a small request without memory.
struct ClientMemoryLimits {
  size_t server = size_t{256} << 20;
  size_t client = size_t{64} << 20;  // share of one client
};

// Memory budgets of the server or of one client.
struct SizedBudgets {
  SizedBudgets(size_t bytes, SizedBudgets* parent)
      : small(bytes / 4, parent != nullptr ? &parent->small : nullptr),
        large(bytes - bytes / 4, parent != nullptr ? &parent->large : nullptr) {}
  MemoryBudget small, large;
};

// A client of the server, identified by its name (client_address.h). Thread-safe.
class Client {
 public:
  Client(std::string name, size_t bytes, std::shared_ptr<SizedBudgets> server);

  const std::string& name() const { return name_; }
  // 64 bits of the SHA-256 of the name.
  uint64_t id() const { return id_; }
  SizedBudgets& memory() { return memory_; }

 private:
  std::string name_;
  uint64_t id_;
  std::shared_ptr<SizedBudgets> server_;
  SizedBudgets memory_;
};

// Registry of all clients that have an open connection, a running request or an unread answer. Thread-safe. Must be
// owned by a shared_ptr.
class ClientRegistry : public std::enable_shared_from_this<ClientRegistry> {
 public:
  explicit ClientRegistry(const ClientMemoryLimits& limits);
  // Returns the client of that name; creates it if necessary. The registry drops a client with its last shared_ptr.
  std::shared_ptr<Client> find(const std::string& name);
  // Bytes charged to all clients together.
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
  kServerFull,  // all clients together hold too much: status 503
};

// The memory charge of one body, parsed request or answer against its client's budgets. Used by one thread at a time.
// Without a client it only counts: every resize is granted.
class ClientCharge {
 public:
  static constexpr size_t kSmall = size_t{64} << 10;

  ClientCharge() = default;
  explicit ClientCharge(std::shared_ptr<Client> client);
  ClientCharge(ClientCharge&& other) noexcept { *this = std::move(other); }
  ClientCharge& operator=(ClientCharge&& other) noexcept;

  // Changes the charge to `bytes`. If the result is not kGranted, the charge is unchanged.
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
