// What mlx-c needs of <format>, which it does not include, for compilers that lack it: "{}" for each
// argument, and no more.
#pragma once
#if __has_include(<format>)
#include <format>
#else
#include <sstream>
#include <string>
#include <string_view>

namespace std {
template <class... Args>
string format(string_view pattern, Args&&... args) {
  ostringstream out;
  auto next = [&](auto&& arg) {
    const auto place = pattern.find("{}");
    if (place == string_view::npos) {
      return;
    }
    out << pattern.substr(0, place) << arg;
    pattern.remove_prefix(place + 2);
  };
  (next(args), ...);
  out << pattern;
  return out.str();
}
}  // namespace std
#endif
