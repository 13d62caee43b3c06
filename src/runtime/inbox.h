// The queue between the callers' threads and the step thread. It holds new requests, and commands that cancel requests
// or change adapters.
//
// The step thread takes all commands at once, but only some of the requests: it takes one request of each client in
// turn, until they have a given number of sequences. Admitting a sequence takes some microseconds, so a client that
// sends a thousand requests at once delays neither the steps nor the requests of others. A client's requests of higher
// priority come first, then earlier ones. But none passes a request that brings an adapter's tensors, in either
// direction, because other requests may need the same tensors, or earlier ones.
//
// Commands are carried out in their order, and before the requests that are taken with them. So a change of an adapter
// is carried out before requests that came earlier. These use the adapter as it was (Request::adapter_changes).
#pragma once

#include <future>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "chorus/executor.h"
#include "runtime/adapter_cache/adapter_holds.h"
#include "runtime/client_lines.h"
#include "runtime/fair_queue.h"
#include "runtime/request_table.h"

namespace chorus {

// Not thread-safe.
class Inbox {
 public:
  struct Cancel {
    executor::IdType id;
  };
  struct SetAdapter {
    executor::IdType task_id;
    std::shared_ptr<const AdapterSource> source;  // null: unregister
    uint64_t number = 0;                          // of the change, ascending from 1; set by add()
  };
  struct LoadAdapter {
    executor::IdType task_id;
    bool pin;
    AdapterHolds::Done done;
  };
  // Ends the pin of `from` and, if there was one, makes one of `to`; 0: none.
  struct MovePin {
    executor::IdType from, to;
  };
  // Asks for the states of the tasks with ids from `first` on, at most `most` of them.
  struct AskedStates {
    executor::IdType first;
    size_t most;
    std::promise<std::vector<executor::AdapterState>> states;
  };
  using Node = RequestTable::Requests::node_type;
  using Command = std::variant<Cancel, SetAdapter, LoadAdapter, MovePin, AskedStates>;

  struct Taken {
    std::vector<Command> commands;
    std::vector<Node> requests;  // after the commands
    uint64_t changes_seen = 0;   // the least Request::adapter_changes of those that are left, and of later ones
  };

  // sequences: limit on those of the requests that one take() returns; the last of these requests may exceed it.
  explicit Inbox(int32_t sequences);

  // If these throw, nothing has changed.
  void add(Command command);
  void add(RequestTable::Requests made);
  // Marks a request as cancelled (Request::cancelled). Returns false if it is not here, or not any more.
  bool cancel(executor::IdType id) noexcept;

  bool empty() const { return commands_.empty() && requests_.empty(); }
  // The result for take(), empty and with room for what take() adds.
  Taken makeTaken() const;
  // Moves all commands and the next requests to `taken`, which is empty.
  void take(Taken& taken) noexcept;

 private:
  struct Place {
    uint64_t group = 0;      // requests of a later group come later
    QueuePosition position;  // of the request's first sequence
    friend bool operator<(const Place& a, const Place& b) {
      return a.group != b.group ? a.group < b.group : a.position < b.position;
    }
  };
  Place placeOf(const Request& request) noexcept;

  int32_t sequences_;
  std::vector<Command> commands_;
  RequestTable::Requests requests_;
  ClientLines<Place> lines_;         // of requests_
  uint64_t groups_ = 0;              // so far
  uint64_t changes_ = 0;             // of adapters, so far
  std::map<uint64_t, size_t> seen_;  // how many of requests_ have seen so many changes; none is 0
};

}  // namespace chorus
