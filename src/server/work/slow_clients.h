// Memory of the clients whose latest tasks took long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorus::server {

// The clients whose latest task was not short.
//
// One sender may appear as very many clients, with addresses of IPv6. So there is room for as many as the server
// remembers elsewhere, in a hash table of fixed size: only the constructor allocates, because a worker must be able to
// go on when memory has run out. If a bucket is full, the entry of the client whose slow task ended first is replaced.
// The ids of the server's clients are hashes, so the buckets fill evenly: of 32,768 slow clients fewer than one in a
// thousand finds its bucket full. Not thread-safe.
class SlowClients {
 public:
  static constexpr size_t kCapacity = 65536;

  // A task of the client has ended.
  void ended(uint64_t client, bool is_short);
  bool contains(uint64_t client) const;

 private:
  static constexpr size_t kBucket = 16;  // entries
  struct Entry {
    uint64_t client = 0;
    uint64_t number = 0;  // of the client's latest slow task; 0: the entry is not used
    bool isOf(uint64_t id) const { return client == id && number != 0; }
  };
  static size_t beginOf(uint64_t client) { return client % (kCapacity / kBucket) * kBucket; }

  std::vector<Entry> entries_ = std::vector<Entry>(kCapacity);  // kBucket entries of each bucket in turn
  uint64_t last_number_ = 0;
};

}  // namespace chorus::server
