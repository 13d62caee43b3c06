// The life of a server process: listen, load, serve, drain.
#pragma once

#include "server/serve_options.h"

namespace chorus::server {

// Serves until SIGTERM or SIGINT and returns when everything is finished. Health is answered from the start, requests
// once the model is loaded. Prints "listening on URL" on stdout. Throws Error when it can't begin to serve. Call it
// before other threads are started: it takes over both signals.
void serve(const ServeOptions& options);

}  // namespace chorus::server
