// The last minutes of the server, drawn from /metrics.

import {getText} from "./api.js";
import {byId, element, svg} from "./dom.js";
import {parseMetrics, quantile, rate, sum} from "./metrics.js";

const SECONDS = 2;  // between two readings
const MINUTES = 5;
const MOST = MINUTES * 60 / SECONDS;
// Latencies are rare: they are those of the last half minute.
const WINDOW = 15;

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [400, 150, 44, 18, 8];

const tokens = (value) => value >= 100 ? value.toFixed(0) : value.toFixed(1);
const seconds = (value) => value >= 1 ? `${value.toFixed(1)} s` : `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)} ms`;
const whole = (value) => Number.isInteger(value) ? String(value) : value.toFixed(1);

const latency = (title, name) => ({
  title,
  unit: seconds,
  lines: [["half of them within", 0.5], ["nine of ten within", 0.9]].map(
      ([label, q]) => ({label, of: (readings, i) => quantile(readings[Math.max(0, i - WINDOW)], readings[i], name, q)})),
});
const perSecond = (name) => (readings, i) => i > 0 ? rate(readings[i - 1], readings[i], name) : undefined;
const level = (name) => (readings, i) => sum(readings[i].metrics, name);

const CHARTS = [
  {title: "Generated tokens a second", unit: tokens,
   lines: [{label: "generated", of: perSecond("moestro_generation_tokens_total")}]},
  {title: "Prompt tokens a second", unit: tokens,
   lines: [{label: "of all prompts", of: perSecond("moestro_prompt_tokens_total")},
           {label: "found in the prefix cache", of: perSecond("moestro_prompt_tokens_cached_total")}]},
  {title: "Requests", unit: whole,
   lines: [{label: "running", of: level("moestro_requests_running")},
           {label: "waiting", of: level("moestro_requests_waiting")}]},
  latency("Time to the first token", "moestro_time_to_first_token_seconds"),
  latency("Time between two tokens", "moestro_inter_token_latency_seconds"),
  latency("Time in the queue", "moestro_request_queue_seconds"),
];

// Reads on for as long as the page is open, so that the dashboard has a history when it is looked at.
export class Dashboard {
  constructor(onReading) {
    this.onReading = onReading;
    this.readings = [];
    this.visible = false;
    this.views = CHARTS.map((chart) => new ChartView(chart));
    byId("charts").append(...this.views.map((view) => view.figure));
    this.poll();
  }

  async poll() {
    try {
      const reading = {time: performance.now() / 1000, metrics: parseMetrics(await getText("metrics"))};
      this.readings = [...this.readings, reading].slice(-MOST);
      this.note = `The last ${MINUTES} minutes, read every ${SECONDS} seconds. A page that is open has a history.`;
      this.onReading(reading.metrics);
    } catch (error) {
      this.note = `/metrics cannot be read: ${error.message}`;
      this.onReading(null);
    }
    this.draw();
    setTimeout(() => this.poll(), 1000 * SECONDS);
  }

  show(visible) {
    this.visible = visible;
    this.draw();
  }

  draw() {
    if (!this.visible) return;
    const note = byId("dashboard-note");
    if (note.textContent !== this.note) note.textContent = this.note;
    for (const view of this.views) view.draw(this.readings);
  }
}

class ChartView {
  constructor(chart) {
    this.chart = chart;
    this.plot = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true"});
    this.values = chart.lines.map(() => element("dd", {}, "–"));
    const list = element("dl", {}, ...chart.lines.flatMap((line, i) => [element("dt", {}, this.sample(i), line.label), this.values[i]]));
    this.figure = element("figure", {class: "chart"}, element("figcaption", {}, chart.title), this.plot, list);
  }

  // What the line looks like, before its name.
  sample(i) {
    const picture = svg("svg", {viewBox: "0 0 24 8", width: "24", height: "8", "aria-hidden": "true", class: "sample"});
    picture.append(svg("polyline", {class: `line-${i}`, points: "0,4 24,4"}));
    return picture;
  }

  draw(readings) {
    const end = readings.at(-1)?.time ?? 0;
    const lines = this.chart.lines.map(
        (line) => readings.map((reading, i) => ({x: reading.time - end, value: line.of(readings, i)})));
    const most = Math.max(...lines.flat().map((point) => point.value ?? 0));
    const top = niceTop(most);
    const x = (ago) => LEFT + (WIDTH - LEFT) * (1 + ago / (60 * MINUTES));
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    this.plot.replaceChildren(...this.axes(top, x, y), ...lines.flatMap((points, i) => segments(points).map(
        (run) => svg("polyline", {class: `line-${i}`, points: run.map((p) => `${x(p.x).toFixed(1)},${y(p.value).toFixed(1)}`).join(" ")}))));
    lines.forEach((points, i) => {
      const value = points.at(-1)?.value;
      const words = value === undefined ? "–" : this.chart.unit(value);
      if (this.values[i].textContent !== words) this.values[i].textContent = words;
    });
  }

  axes(top, x, y) {
    const marks = [0, top / 2, top].map((value) => [
      svg("line", {class: "grid", x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value)}),
      svg("text", {x: LEFT - 4, y: y(value) + 4, "text-anchor": "end"}, this.chart.unit(value)),
    ]);
    const times = [MINUTES, MINUTES / 2, 0].map((ago) => svg(
        "text", {x: x(-60 * ago), y: HEIGHT - 4, "text-anchor": ago === MINUTES ? "start" : ago ? "middle" : "end"},
        ago ? `−${ago} min` : "now"));
    return [...marks.flat(), ...times];
  }
}

// Runs of points that have a value.
function segments(points) {
  const runs = [[]];
  for (const point of points) {
    if (point.value !== undefined) runs.at(-1).push(point);
    else if (runs.at(-1).length) runs.push([]);
  }
  return runs.filter((run) => run.length);
}

// 1, 2 or 5 times a power of ten.
function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}
