// The body of a long answer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/errors.h"
#include "server/http/http.h"

namespace chorus::server {

// A text whose memory is charged to the client as it grows. add() and addArray() throw ApiError (429, 503) if the
// memory is not granted.
class ChargedBody {
 public:
  explicit ChargedBody(const std::shared_ptr<Client>& client) : memory_(client) {}

  void add(std::string_view text) {
    const size_t size = text_.size() + text.size();
    if (size > text_.capacity()) {
      const size_t capacity = std::max(text_.capacity() + text_.capacity() / 2, size);
      addCharge(memory_, capacity - memory_.bytes());
      text_.reserve(capacity);
    }
    text_ += text;
  }
  // Adds "[a,b,...]"; write(i) returns the text of the value i.
  template <typename Write>
  void addArray(size_t count, const Write& write) {
    add("[");
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) add(",");
      add(write(i));
    }
    add("]");
  }
  // Moves the text and its charge into a response; the body is not used afterwards.
  HttpResponse response() {
    HttpResponse response{.body = std::move(text_)};
    response.memory = std::move(memory_);
    return response;
  }

 private:
  std::string text_;
  ClientCharge memory_;
};

}  // namespace chorus::server
