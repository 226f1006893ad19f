// Axes: which values they show, and where their ticks are.

// Round steps for about `count` ticks between two values.
export function ticks(low, high, count) {
  const span = high - low;
  if (!(span > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) return [low]; // steps would be lost to rounding
  const rough = span / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((nice) => nice * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

export function label(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace("e+", "e").replace(".0e", "e") : String(Number(value.toPrecision(4)));
}

// The range of an axis: all values, but none that is `extreme` times further from the best than nine tenths of them.
export function view(values, sign, extreme) {
  const ordered = values.filter(Number.isFinite).sort((a, b) => sign * (b - a));
  if (!ordered.length) return [0, 1];
  const [best] = ordered, usual = ordered[Math.floor(0.9 * (ordered.length - 1))];
  let last = ordered[ordered.length - 1];
  if (ordered.length >= 10 && usual !== best) {
    const reach = extreme * Math.abs(usual - best);
    for (let i = ordered.length - 1; Math.abs(last - best) > reach; i--) last = ordered[i];
  }
  const [low, high] = [Math.min(best, last), Math.max(best, last)];
  const margin = 0.05 * (high - low) || Math.abs(high) * 0.05 || 0.5;
  return [low - margin, high + margin];
}

const UNITS = [[3600, "hours"], [60, "minutes"], [1, "seconds"]];

// What a time axis of so many seconds is divided by, and its unit.
export const timeAxis = (seconds) => UNITS.find(([unit]) => seconds >= 2 * unit || unit === 1);
