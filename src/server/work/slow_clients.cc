#include "server/work/slow_clients.h"

#include <algorithm>
#include <span>

namespace chorus::server {

void SlowClients::ended(uint64_t client, bool is_short) {
  const std::span bucket = std::span(entries_).subspan(beginOf(client), kBucket);
  auto entry = std::ranges::find_if(bucket, [&](const Entry& one) { return one.isOf(client); });
  if (is_short) {
    if (entry != bucket.end()) *entry = {};
    return;
  }
  if (entry == bucket.end()) entry = std::ranges::min_element(bucket, {}, &Entry::number);  // a free one, if any
  *entry = {client, ++last_number_};
}

bool SlowClients::contains(uint64_t client) const {
  const std::span bucket = std::span(entries_).subspan(beginOf(client), kBucket);
  return std::ranges::any_of(bucket, [&](const Entry& one) { return one.isOf(client); });
}

}  // namespace chorus::server
