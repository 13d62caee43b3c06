// Builds an OrderedJson in nearly linear time. nlohmann's own builder takes quadratic time: it compares every key of an
// object with all keys before it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorus {

// A handler for OrderedJson::sax_parse. A duplicate key keeps its first position and its last value.
class OrderedBuilder final : public nlohmann::json_sax<nlohmann::ordered_json> {
 public:
  using Json = nlohmann::ordered_json;
  // Subtype of the binary values that hold the digits of integers. JSON text has no binary values of its own.
  static constexpr uint8_t kWideInteger = 1;

  // exact: an integer beyond 64 bits becomes a binary value of subtype kWideInteger with the integer's text.
  explicit OrderedBuilder(bool exact = false) : exact_(exact) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!exact_ || text.find_first_of(".eE") != string_t::npos) return add(value);
    return add(Json::binary({text.begin(), text.end()}, kWideInteger));
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    Open& open = open_.back();
    Members& members = open.value->get_ref<Json::object_t&>();
    const auto place = findPlace(open, members, key);
    if (!place) {
      if (members.size() >= kCompared) open.places.emplace(key, members.size());
      members.emplace_back(std::move(key), nullptr);
    }
    open.member = place.value_or(members.size() - 1);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    position_ = position;
    out_of_range_ = dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr;
    return false;
  }

  // The document, after parsing has succeeded.
  Json take() { return std::move(root_); }
  // After parsing has failed: whether a number was beyond a double's range; if not, the position (from 1) of the syntax
  // error.
  bool outOfRange() const { return out_of_range_; }
  size_t position() const { return position_; }

 private:
  using Members = std::vector<Json::object_t::value_type>;
  // The first kCompared members of an object are searched linearly, later ones through Open::places.
  static constexpr size_t kCompared = 16;
  struct Open {
    Json* value;
    size_t member = 0;                     // if an object: index of the member that gets the next value
    std::map<std::string, size_t> places;  // if an object: indices of the members after the first kCompared
  };

  static std::optional<size_t> findPlace(const Open& open, const Members& members, const std::string& key) {
    for (size_t i = 0; i < members.size() && i < kCompared; ++i) {
      if (members[i].first == key) return i;
    }
    const auto it = open.places.find(key);
    return it == open.places.end() ? std::nullopt : std::optional(it->second);
  }
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Open& open = open_.back();
    if (open.value->is_array()) {
      open.value->push_back(std::move(value));
      return open.value->back();
    }
    Members& members = open.value->get_ref<Json::object_t&>();
    return members[open.member].second = std::move(value);
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  // The pointer stays valid: nothing is added to the enclosing container until this one is closed.
  bool open(Json value) {
    open_.push_back({.value = &place(std::move(value))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  bool exact_;
  Json root_;
  std::vector<Open> open_;
  size_t position_ = 0;
  bool out_of_range_ = false;
};

}  // namespace chorus
