// Line plots as SVG: one file that any browser shows, light or dark.
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
  bool log_x = false;              // points with x <= 0 stand at the left edge
  std::vector<PlotSeries> series;  // at most six
};

std::string svgOf(const Plot& plot);

// The share in percent of values that are at most x, x being values times scale; a few hundred points at most.
std::vector<std::pair<double, double>> cumulativeCurve(std::vector<double> values, double scale);

}  // namespace chorus
