#include "runtime/inbox.h"

#include <gtest/gtest.h>

#include <string>

namespace chorus {
namespace {

using executor::IdType;

RequestTable::Requests requestsOf(std::optional<IdType> client, const std::vector<IdType>& ids, int32_t sequences = 1,
                                  float priority = 0.5f) {
  RequestTable::Requests made;
  for (const IdType id : ids) {
    executor::SamplingConfig sampling;
    sampling.setNumReturnSequences(sequences);
    executor::Request asked({1, 2}, 3, false, sampling);
    asked.setClientId(client);
    asked.setPriority(priority);
    made.emplace(id, std::make_unique<Request>(id, asked, nullptr, 64, makeStrategy));
  }
  return made;
}

// Takes once from the inbox. Returns a letter for each command, then the ids of the requests.
std::string take(Inbox& inbox) {
  auto taken = inbox.makeTaken();
  inbox.take(taken);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " ") + part; };
  for (const auto& command : taken.commands) {
    if (const auto* cancel = std::get_if<Inbox::Cancel>(&command)) add("c" + std::to_string(cancel->id));
    if (const auto* set = std::get_if<Inbox::SetAdapter>(&command)) add("s" + std::to_string(set->task_id));
  }
  for (const auto& node : taken.requests) add(std::to_string(node.key()) + (node.mapped()->cancelled ? "x" : ""));
  return text;
}

TEST(InboxTest, ClientsTakeTurnsAndTheRestIsLeft) {
  Inbox inbox(4);
  inbox.add(requestsOf(1, {1, 2, 3, 4, 5}));
  inbox.add(requestsOf(2, {6, 7}));
  inbox.add(requestsOf(std::nullopt, {8}));
  EXPECT_EQ(take(inbox), "1 6 8 2");
  EXPECT_EQ(take(inbox), "7 3 4 5");
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(take(inbox), "");
}

TEST(InboxTest, SequencesCount) {
  Inbox inbox(4);
  inbox.add(requestsOf(1, {1, 2, 3}, 3));
  EXPECT_EQ(take(inbox), "1 2");
  EXPECT_EQ(take(inbox), "3");
  inbox.add(requestsOf(1, {4}, 1000));
  EXPECT_EQ(take(inbox), "4") << "a request is taken as a whole";
}

TEST(InboxTest, AClientsRequestsAreTakenByPriority) {
  Inbox inbox(2);
  inbox.add(requestsOf(1, {1, 2}));
  inbox.add(requestsOf(1, {3}, 1, 0.9f));
  inbox.add(requestsOf(1, {4}, 1, 0.1f));
  inbox.add(requestsOf(1, {5}, 1, 0.9f));
  inbox.add(requestsOf(2, {6}, 1, 0.1f));
  EXPECT_EQ(take(inbox), "3 6") << "a client's priority gives it no turns of others";
  EXPECT_EQ(take(inbox), "5 1");
  EXPECT_EQ(take(inbox), "2 4");
}

// Requests 2 and 3 may need the tensors that 1 brings, but not those of 4.
TEST(InboxTest, RequestsWithTensorsKeepTheirPlace) {
  Inbox inbox(4);
  auto with_tensors = [](IdType id) {
    auto made = requestsOf(1, {id}, 1, 0.1f);
    made.at(id)->lora_source = std::make_shared<AdapterSource>();
    return made;
  };
  inbox.add(with_tensors(1));
  inbox.add(requestsOf(1, {2}, 1, 0.1f));
  inbox.add(requestsOf(1, {3}, 1, 0.9f));
  inbox.add(with_tensors(4));
  inbox.add(requestsOf(1, {5}, 1, 0.9f));
  EXPECT_EQ(take(inbox), "1 3 2 4");
  EXPECT_EQ(take(inbox), "5");
}

TEST(InboxTest, RequestsHaveSeenTheChangesOfAdaptersThatCameBeforeThem) {
  Inbox inbox(2);
  inbox.add(requestsOf(1, {1, 2, 3}));
  inbox.add(requestsOf(2, {4}));
  inbox.add(Inbox::SetAdapter{9, nullptr});
  inbox.add(requestsOf(1, {5}));
  inbox.add(Inbox::SetAdapter{8, nullptr});
  inbox.add(requestsOf(1, {6}));
  // The numbers of the changes that are taken, the changes that each request has seen, and those of all that are left.
  const auto changes = [&] {
    auto taken = inbox.makeTaken();
    inbox.take(taken);
    std::string text;
    for (const auto& command : taken.commands)
      text += "s" + std::to_string(std::get<Inbox::SetAdapter>(command).number) + " ";
    for (const auto& node : taken.requests) {
      text += std::to_string(node.key()) + ":" + std::to_string(node.mapped()->adapter_changes) + " ";
    }
    return text + "left " + std::to_string(taken.changes_seen);
  };
  EXPECT_EQ(changes(), "s1 s2 1:0 4:0 left 0") << "a change lets no more requests in";
  EXPECT_EQ(changes(), "2:0 3:0 left 1");
  EXPECT_EQ(changes(), "5:1 6:2 left 2");
  inbox.add(Inbox::SetAdapter{7, nullptr});
  EXPECT_EQ(changes(), "s3 left 3");
}

TEST(InboxTest, ARequestThatWaitsIsCancelledThere) {
  Inbox inbox(2);
  inbox.add(requestsOf(1, {1, 2, 3}));
  EXPECT_TRUE(inbox.cancel(3));
  EXPECT_FALSE(inbox.cancel(4));
  EXPECT_EQ(take(inbox), "1 2");
  EXPECT_FALSE(inbox.cancel(1));
  EXPECT_EQ(take(inbox), "3x");
}

}  // namespace
}  // namespace chorus
