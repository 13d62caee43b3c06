// The page at "/": one HTML document with its style and script, for trying adapters in a browser.
#pragma once

#include "server/http/http.h"

namespace chorus::server {

// The page refers to nothing outside itself and to no other host than the server's, which its content security policy
// enforces. It holds no secret: the script asks the API for everything, with the key that the user enters.
HttpResponse pageResponse();

}  // namespace chorus::server
