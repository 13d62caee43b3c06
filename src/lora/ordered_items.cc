#include "lora/ordered_items.h"

#include <map>

#include "base/error.h"

namespace chorus {
namespace {

class Items final : public JsonEvents {
 public:
  Items(std::string_view field, size_t most) : field_(field), most_(most) {}

  bool key(string_t& key) override {
    if (depth_ == 1) {
      in_field_ = key == field_;
      if (in_field_) clear();
    } else if (depth_ == 2 && in_field_ && is_object_) {
      const auto [it, inserted] = place_.try_emplace(key, items.size());
      current_ = it->second;
      if (inserted) items.emplace_back(std::move(key), nullptr);
      too_many = too_many || items.size() > most_;
      if (too_many) clear();
    }
    return true;
  }
  bool start_object(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool null() override { return take(nullptr); }
  bool boolean(bool value) override { return take(value); }
  bool number_integer(number_integer_t value) override { return take(value); }
  bool number_unsigned(number_unsigned_t value) override { return take(value); }
  bool number_float(number_float_t value, const string_t&) override { return take(value); }
  bool string(string_t& value) override { return take(std::move(value)); }

  std::vector<std::pair<std::string, Json>> items;
  bool other = false;     // the field is neither an object nor null
  bool too_many = false;  // the object has more items than most

 private:
  void clear() {
    items.clear();
    place_.clear();
    other = false;
    is_object_ = false;
  }
  bool open(bool object) {
    if (depth_ == 1 && in_field_) {
      is_object_ = object;
      other = !object;
    } else {
      take(nullptr);
    }
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  bool take(Json value) {
    if (depth_ == 1 && in_field_) {
      other = !value.is_null();
    } else if (depth_ == 2 && in_field_ && is_object_ && current_ < items.size()) {
      items[current_].second = std::move(value);
    }
    return true;
  }

  std::string_view field_;
  size_t most_;
  int depth_ = 0;
  bool in_field_ = false;   // the last key of the top object was `field_`
  bool is_object_ = false;  // the field is an object
  size_t current_ = 0;      // the item whose value comes next
  std::map<std::string, size_t> place_;
};

}  // namespace

std::vector<std::pair<std::string, Json>> orderedItems(std::string_view text, std::string_view field, size_t most,
                                                       std::string_view source, const JsonLimits& limits) {
  Items found(field, most);
  parseJsonEvents(text, source, limits, found);
  if (found.other || found.too_many) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be an object of at most {} patterns", source, field, most);
  }
  return std::move(found.items);
}

}  // namespace chorus
