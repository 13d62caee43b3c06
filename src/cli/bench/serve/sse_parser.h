// Parses server-sent events from a byte stream that may be split anywhere.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace chorus {

class SseParser {
 public:
  // Called with the data of each event, its lines joined by line feeds. Other fields and comments are ignored.
  using OnData = std::function<void(std::string_view data)>;
  static constexpr size_t kMaxEventBytes = size_t{16} << 20;

  explicit SseParser(OnData on_data) : on_data_(std::move(on_data)) {}
  // Throws Error(kCorrupt) when an event exceeds kMaxEventBytes.
  void feed(std::string_view bytes);

 private:
  void endLine();

  OnData on_data_;
  std::string line_, data_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was a carriage return, so a line feed now does not end another line
};

}  // namespace chorus
