// A non-owning reference to a callable, for function parameters. Unlike std::function it never allocates.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace chorus {

template <typename Signature>
class FunctionRef;

// The callable must outlive the FunctionRef.
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<Result, F&, Args...>)
  FunctionRef(F&& callable)  // implicit, so that a lambda can be passed as a FunctionRef argument
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace chorus
