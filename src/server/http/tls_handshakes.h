// The thread that computes the handshakes of TLS.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "server/http/tls_session.h"
#include "server/work/worker_pool.h"

namespace chorus::server {

// A handshake costs a signature with the private key, which takes milliseconds, for a message that costs its client
// nothing. The I/O threads must not spend that time, because they serve all other connections. One thread of lower
// priority does, and clients take turns, so that one which begins handshakes without end delays mostly its own.
// Thread-safe.
class TlsHandshakes {
 public:
  // Called on the thread; must be copyable.
  using Done = std::function<void(TlsSession::Result)>;

  // Takes one step of the session's handshake. Until `done` is called, or destroyed, the session must stay alive and
  // nothing else may use it. A handshake that is abandoned by then is not computed: its result is kEnd. After stop()
  // `done` may be destroyed without a call. Returns an id for drop().
  uint64_t step(uint64_t client, TlsSession& session, Done done) {
    const auto task = [this, &session, done = std::move(done)] {
      const bool pointless = stopped_ || session.isAbandoned();
      done(pointless ? TlsSession::Result{TlsSession::Status::kEnd} : session.handshake());
    };
    return worker_.post(client, 0, task).id;
  }
  // Destroys `done` of a step that has not begun; false if it has begun or ended.
  bool drop(uint64_t id) { return worker_.drop(id); }
  // Ends the thread after the step that it computes now: those that wait get kEnd. Idempotent; one caller at a time.
  void stop() {
    stopped_ = true;
    worker_.finish();
  }
  bool stopped() const { return stopped_; }

 private:
  std::atomic<bool> stopped_{false};
  WorkerPool worker_{WorkerOptions{.threads = 1, .niceness = 5}};  // last, because its thread uses the other
};

}  // namespace chorus::server
