// Draws line plots as SVG, for browsers in light or dark mode.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace chorus {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; may be empty
};

struct Plot {
  std::string title, x_label, y_label;
  bool log_x = false;              // points with x <= 0 are drawn at the left edge
  std::vector<PlotSeries> series;  // at most six
};

std::string svgOf(const Plot& plot);

// Cumulative distribution: percent of values * scale that are at most x. Returns at most a few hundred points.
std::vector<std::pair<double, double>> cumulativeCurve(std::vector<double> values, double scale);

}  // namespace chorus
