// The life of a server process: listen, load, serve, drain.
#pragma once

#include "server/serve_options.h"

namespace chorus::server {

// Serves until SIGTERM or SIGINT, and returns when all requests have ended. Answers health checks from the start, and
// other requests once the model is loaded. Prints "listening on URL" on stdout. Throws Error if it cannot begin to
// serve. Must be called before other threads are started, because it takes over both signals.
void serve(const ServeOptions& options);

}  // namespace chorus::server
