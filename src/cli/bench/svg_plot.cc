#include "cli/bench/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace chorus {
namespace {

constexpr double kWidth = 760, kHeight = 420;
constexpr double kLeft = 64, kRight = 24, kTop = 72, kBottom = 56;
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

struct Tick {
  double value;
  bool labelled;
};

// Range in plot coordinates; a logarithmic axis stores exponents of ten.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<Tick> ticks;

  double place(double value) const {
    const double at = log ? std::log10(std::max(value, std::pow(10.0, low))) : value;
    return std::clamp((at - low) / (high - low), 0.0, 1.0);
  }
};

// The smallest of 1, 2 or 5 times a power of ten with which at most about `count` steps fill the span.
double stepOf(double span, double count) {
  const double raw = span / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

Axis linearAxis(double low, double high) {
  Axis axis{.low = low, .high = high > low ? high : low + 1};
  const double step = stepOf(axis.high - axis.low, 5);
  for (double at = std::ceil(axis.low / step) * step; at <= axis.high * (1 + 1e-12); at += step) {
    axis.ticks.push_back({at, true});
  }
  return axis;
}

Axis logAxis(double low, double high) {
  Axis axis{.low = std::log10(low), .high = std::log10(high), .log = true};
  if (axis.high - axis.low < 0.3) {  // widen to a factor of two
    const double middle = (axis.high + axis.low) / 2;
    axis.low = middle - 0.15;
    axis.high = middle + 0.15;
  }
  const bool few = axis.high - axis.low < 2.2;
  for (double power = std::floor(axis.low); power <= axis.high; ++power) {
    for (int digit = 1; digit < 10; ++digit) {
      const double at = power + std::log10(digit);
      if (at < axis.low - 1e-9 || at > axis.high + 1e-9) continue;
      axis.ticks.push_back({std::pow(10.0, at), digit == 1 || (few && (digit == 2 || digit == 5))});
    }
  }
  return axis;
}

// The axis of all x; a logarithmic axis ignores points with x <= 0.
Axis xAxis(const Plot& plot) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const PlotSeries& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      if (plot.log_x && x <= 0) continue;
      low = std::min(low, x);
      high = std::max(high, x);
    }
  }
  if (!std::isfinite(low)) return plot.log_x ? logAxis(1, 10) : linearAxis(0, 1);
  return plot.log_x ? logAxis(low, high) : linearAxis(std::min(low, 0.0), high);
}

Axis yAxis(const Plot& plot) {
  double high = 0;
  for (const PlotSeries& series : plot.series) {
    for (const auto& [x, y] : series.points) high = std::max(high, y);
  }
  return linearAxis(0, high);
}

constexpr const char* kStyle =
    "text{font:13px system-ui,sans-serif;fill:#333}.title{font-size:16px;font-weight:600}.grid{stroke:#e2e2e2}"
    ".axis{stroke:#888}.line{fill:none;stroke-width:2;stroke-linejoin:round}.ground{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#3a3a3a}.ground{fill:#1b1b1b}}";

}  // namespace

std::string svgOf(const Plot& plot) {
  const Axis x = xAxis(plot), y = yAxis(plot);
  const auto px = [&](double value) { return kLeft + x.place(value) * (kWidth - kLeft - kRight); };
  const auto py = [&](double value) { return kHeight - kBottom - y.place(value) * (kHeight - kTop - kBottom); };
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n"
      "<title>{2}</title>\n<style>{3}</style>\n<rect class=\"ground\" width=\"{0}\" height=\"{1}\"/>\n"
      "<text class=\"title\" x=\"{4}\" y=\"28\">{2}</text>\n",
      kWidth, kHeight, escaped(plot.title), kStyle, kLeft);
  for (const Tick& tick : x.ticks) {
    svg += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", px(tick.value),
                       kTop, bottom);
    if (!tick.labelled) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.6g}</text>\n", px(tick.value),
                       bottom + 18, tick.value);
  }
  for (const Tick& tick : y.ticks) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>\n"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.6g}</text>\n",
        kLeft, py(tick.value), right, kLeft - 8, py(tick.value) + 4, tick.value);
  }
  svg += fmt::format(
      "<path class=\"axis\" fill=\"none\" d=\"M{0} {1}V{2}H{3}\"/>\n"
      "<text x=\"{4}\" y=\"{5}\" text-anchor=\"middle\">{6}</text>\n"
      "<text transform=\"translate(16 {7}) rotate(-90)\" text-anchor=\"middle\">{8}</text>\n",
      kLeft, kTop, bottom, right, (kLeft + right) / 2, kHeight - 14, escaped(plot.x_label), (kTop + bottom) / 2,
      escaped(plot.y_label));
  double legend = kLeft;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const PlotSeries& series = plot.series[i];
    const char* color = kColors[i % std::size(kColors)];
    const std::string name = series.name + (series.points.empty() ? " (none)" : "");
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"48\" x2=\"{1}\" y2=\"48\" stroke=\"{2}\" stroke-width=\"3\"/>\n"
        "<text x=\"{3}\" y=\"52\">{4}</text>\n",
        legend, legend + 20, color, legend + 26, escaped(name));
    legend += 48 + 7.2 * static_cast<double>(name.size());
    if (series.points.empty()) continue;
    svg += fmt::format("<path class=\"line\" stroke=\"{}\" d=\"", color);
    char command = 'M';
    for (const auto& [at, value] : series.points) {
      svg += fmt::format("{}{:.1f} {:.1f}", command, px(at), py(value));
      command = 'L';
    }
    svg += "\"/>\n";
  }
  return svg + "</svg>\n";
}

std::vector<std::pair<double, double>> cumulativeCurve(std::vector<double> values, double scale) {
  constexpr size_t kMostPoints = 400;
  std::sort(values.begin(), values.end());
  const size_t count = values.size(), points = std::min(count, kMostPoints);
  std::vector<std::pair<double, double>> curve;
  for (size_t i = 1; i <= points; ++i) {
    const size_t rank = i * count / points;  // number of values counted up to this point
    curve.emplace_back(values[rank - 1] * scale, 100.0 * static_cast<double>(rank) / static_cast<double>(count));
  }
  return curve;
}

}  // namespace chorus
