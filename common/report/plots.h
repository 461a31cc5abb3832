// Plots as inline SVG figures, coloured by the page's style sheet (html.h). At most six series have separate colours.
#pragma once

#include <string>
#include <vector>

namespace moestro {

// Groups of vertical bars, one bar per series in every group.
struct BarPlot {
  struct Series {
    std::string name;
    std::vector<double> values;       // one per group; NaN: no bar
    std::vector<std::string> labels;  // written above the bars
  };
  std::string title;
  std::vector<std::string> groups;
  std::vector<Series> series;
};
// Empty if there is nothing to draw.
std::string ToSvg(const BarPlot& plot);

// Lines over a common x axis. An axis starts at 0, or is logarithmic, from one power of two to another.
struct LinePlot {
  struct Point {
    double x = 0;  // on a logarithmic axis positive, else not negative; the same holds for y
    double y = 0;
  };
  struct Series {
    std::string name;
    std::vector<Point> points;             // ascending x; of more than some hundred points, only a selection is drawn
    std::vector<std::string> labels = {};  // one per point: dots with these texts instead of a line
    bool dashed = false;
  };
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool log_x = false;
  bool log_y = false;
};
// Empty if no series has two points.
std::string ToSvg(const LinePlot& plot);

}  // namespace moestro
