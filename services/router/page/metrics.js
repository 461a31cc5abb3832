// Prometheus' text format, and what the dashboard makes of two readings.

// Map of name to [{labels, value}].
export function parseMetrics(text) {
  const metrics = new Map();
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    if (!metrics.has(match[1])) metrics.set(match[1], []);
    metrics.get(match[1]).push({labels, value: Number(match[3].replace("Inf", "Infinity"))});
  }
  return metrics;
}

// The sum over all labels; undefined if there is no such metric.
export function sum(metrics, name) {
  return metrics.get(name)?.reduce((total, sample) => total + sample.value, 0);
}

// Increase a second between two readings; undefined if the metric is absent or the server began anew.
export function rate(before, after, name) {
  const [a, b] = [sum(before.metrics, name), sum(after.metrics, name)];
  const seconds = after.time - before.time;
  return a === undefined || b === undefined || b < a || seconds <= 0 ? undefined : (b - a) / seconds;
}

// A quantile of what a histogram has counted between two readings, as Prometheus' histogram_quantile() has it;
// undefined if nothing was counted.
export function quantile(before, after, name, q) {
  const buckets = new Map();
  for (const [reading, sign] of [[before, -1], [after, 1]]) {
    for (const {labels, value} of reading.metrics.get(`${name}_bucket`) ?? []) {
      const bound = Number(labels.le.replace("Inf", "Infinity"));
      buckets.set(bound, (buckets.get(bound) ?? 0) + sign * value);
    }
  }
  const bounds = [...buckets.keys()].sort((a, b) => a - b);
  const total = buckets.get(Infinity) ?? 0;
  if (total <= 0) return undefined;
  let [below, lower] = [0, 0];
  for (const bound of bounds) {
    const count = buckets.get(bound);
    if (count >= q * total) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * (count - below > 0 ? (q * total - below) / (count - below) : 1);
    }
    [below, lower] = [count, bound];
  }
  return lower;
}
