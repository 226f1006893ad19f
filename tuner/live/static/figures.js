// The figures of a run: best so far, learning curves, slots over time, rungs.

import { Chart } from "./chart.js";
import { el, patch, say, section, short } from "./dom.js";
import { timeAxis, view } from "./scale.js";

const STATUSES = ["stopped", "failed", "pending", "paused", "completed", "running"]; // drawn in this order

const signOf = (run) => (run.objectives[0][1] === "max" ? 1 : -1);
const better = ([metric, mode]) => `${metric} (${mode === "max" ? "higher" : "lower"} is better)`;
const numbers = (trial) => trial.best.map((text) => (text === "" ? null : Number(text)));

function legend(layers, toggle) {
  return layers.map(({ name, colour: shade, shown = true }) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = `var(--${shade})`;
    return el("button", { class: "key", "aria-pressed": String(shown), onclick: () => toggle(name) }, swatch, name);
  });
}

export class BestSoFar {
  constructor(choose) {
    this.chart = new Chart({ name: "best so far", choose, tell: (path, i) => path.tell(i) });
    this.caption = el("p", { class: "caption" });
    this.title = el("h2", {}, "Best so far");
    this.element = el("section", { "data-part": "best" }, this.title, this.chart.element, this.caption);
  }

  draw(store) {
    const { run } = store;
    if (run.objectives.length > 1) return this.front(store);
    const [unit, name] = timeAxis(store.elapsed), sign = signOf(run);
    const tried = [...store.trials.values()].filter((trial) => trial.best.length);
    const own = tried.map((trial) => numbers(trial)[0]);
    const xs = store.best.map(([seconds]) => seconds / unit), ys = store.best.map(([, value]) => value);
    const tells = store.best.map(([, value, number]) => `${short(value)}: trial #${number}`);
    if (xs.length) { xs.push(store.elapsed / unit); ys.push(ys[ys.length - 1]); tells.push(`${short(ys[ys.length - 1])} now`); }
    const dots = { xs: tried.map((trial) => trial.at / unit), ys: own, tell: (i) => `trial #${tried[i].number}: ${tried[i].best[0]}` };
    this.chart.show(
      { range: [0, Math.max(store.elapsed / unit, 1e-9)], title: `time of the search (${name})` },
      { range: view([...own, ...ys], sign, run.extreme), title: better(run.objectives[0]) },
      [
        { kind: "dots", colour: "pending", width: 2.5, alpha: 0.5, paths: [dots] },
        { kind: "steps", colour: "completed", width: 2.5, paths: [{ xs, ys, tell: (i) => tells[i] }] },
      ],
    );
    say(this.caption, xs.length ? `The line is the best so far; a dot is the best of a trial.` : "Nothing was reported yet.");
  }

  // Trials by the first two objectives.
  front(store) {
    say(this.title, "Pareto front");
    const { run, head } = store, on = new Set(head.front);
    const tried = [...store.trials.values()].filter((trial) => trial.best.length > 1);
    const points = (chosen) => ({
      xs: chosen.map((trial) => numbers(trial)[0]), ys: chosen.map((trial) => numbers(trial)[1]),
      tell: (i) => `trial #${chosen[i].number}: ${chosen[i].best.join(", ")}`,
    });
    const best = tried.filter((trial) => on.has(trial.number)).sort((a, b) => numbers(a)[0] - numbers(b)[0]);
    const others = tried.filter((trial) => !on.has(trial.number));
    const range = (i) => view(tried.map((trial) => numbers(trial)[i]), run.objectives[i][1] === "max" ? 1 : -1, run.extreme);
    this.chart.show(
      { range: range(0), title: better(run.objectives[0]) },
      { range: range(1), title: better(run.objectives[1]) },
      [
        { kind: "dots", colour: "pending", width: 3, alpha: 0.6, paths: [points(others)] },
        { kind: "line", colour: "completed", width: 1, paths: [points(best)] },
        { kind: "dots", colour: "completed", width: 4.5, paths: [points(best)] },
      ],
    );
    say(this.caption, `${best.length} of ${tried.length} trials are on the front.`);
  }
}

export class Curves {
  constructor(choose) {
    this.hidden = new Set();
    this.chart = new Chart({ name: "learning curves", choose, tell: (path, i) => `trial #${path.of}: ${short(path.ys[i])} at ${short(path.xs[i])}` });
    this.keys = el("div", { class: "keys" });
    this.element = section("curves", "Learning curves", this.chart.element, this.keys);
  }

  draw(store, chosen) {
    const { run, head } = store, by = Object.fromEntries(STATUSES.map((status) => [status, []]));
    const all = [];
    let end = 0;
    for (const trial of store.trials.values()) {
      if (!trial.xs.length) continue;
      by[trial.status]?.push({ xs: trial.xs, ys: trial.ys, of: trial.number });
      if (this.hidden.has(trial.status)) continue;
      end = Math.max(end, trial.xs[trial.xs.length - 1] ?? 0);
      for (const y of trial.ys) all.push(y ?? NaN);
    }
    const many = store.trials.size > 100;
    const named = STATUSES.filter((status) => by[status].length);
    const layers = named.map((status) => ({
      name: `${status} (${by[status].length})`, status, colour: status, paths: by[status],
      width: many ? 0.9 : 1.4, alpha: status === "running" ? 1 : many ? 0.35 : 0.75, shown: !this.hidden.has(status),
    }));
    const shown = layers.filter((layer) => layer.shown);
    const mark = (number, shade, width) => {
      const trial = store.trials.get(number);
      if (trial?.xs.length) shown.push({ colour: shade, width, paths: [{ xs: trial.xs, ys: trial.ys, of: number }] });
    };
    if (!head.front.length && head.best) mark(head.best, "best", 3);
    chosen.forEach((number) => mark(number, "text", 2.5));
    this.chart.show(
      { range: [0, Math.max(end, 1)], title: `${run.unit}s`, whole: true },
      { range: view(all, signOf(run), run.extreme), title: better(run.objectives[0]) },
      shown,
    );
    const best = head.best && !head.front.length ? [{ name: `the best, #${head.best}`, colour: "best" }] : [];
    this.drawn = { layers, store, chosen };
    patch(this.keys, legend([...layers, ...best], (name) => this.toggle(name)));
  }

  toggle(name) {
    const { layers, store, chosen } = this.drawn;
    const status = layers.find((layer) => layer.name === name)?.status;
    if (!status) return;
    if (!this.hidden.delete(status)) this.hidden.add(status);
    this.draw(store, chosen);
  }
}

export class Busy {
  constructor() {
    this.chart = new Chart({ name: "slots in use", height: 200 });
    this.element = section("busy", "Slots in use", this.chart.element);
  }

  draw(store) {
    const [unit, name] = timeAxis(store.elapsed), { xs, ys } = store.busy;
    const most = Math.max(store.now.slots ?? 0, ...ys, 1);
    const last = ys.length ? ys[ys.length - 1] : 0;
    const path = { xs: [...xs.map((x) => x / unit), store.elapsed / unit], ys: [...ys, last] };
    const end = Math.max(store.elapsed / unit, 1e-9), slots = { xs: [0, end], ys: [most, most] };
    this.chart.show(
      { range: [0, end], title: `time of the search (${name})` },
      { range: [0, most * 1.05], title: "trials", whole: true },
      [
        { colour: "pending", width: 1, paths: store.now.slots ? [slots] : [] },
        { kind: "steps", colour: "running", width: 1.6, paths: [path] },
      ],
    );
  }
}

export class Rungs {
  constructor() {
    this.body = el("tbody");
    this.unit = el("th", { class: "number" });
    const names = ["reached", "stopped here", "wait here"].map((name) => el("th", { class: "number" }, name));
    const head = el("tr", {}, this.unit, ...names, el("th"));
    this.element = section("rungs", "Rungs", el("div", { class: "wide" }, el("table", {}, el("thead", {}, head), this.body)));
  }

  draw(store) {
    const { run } = store, trials = [...store.trials.values()];
    const seen = trials.map((trial) => trial.rung).filter((rung) => rung !== null && rung !== undefined);
    const rungs = [...new Set([...run.rungs, ...seen, ...(run.max_t ? [run.max_t] : [])])].sort((a, b) => a - b);
    this.element.hidden = !rungs.length;
    say(this.unit, run.unit);
    const reached = (rung) => trials.filter((trial) => (trial.x ?? 0) >= rung).length;
    const first = Math.max(1, reached(rungs[0]));
    this.body.replaceChildren(...rungs.map((rung) => {
      const count = reached(rung);
      const stopped = trials.filter((trial) => trial.status === "stopped" && trial.rung === rung).length;
      const waiting = trials.filter((trial) => trial.status === "paused" && trial.x === rung).length;
      const bar = el("div", { class: "bar" });
      bar.style.width = `${(100 * count) / first}%`;
      const cells = [rung, count, stopped || "", waiting || ""].map((value) => el("td", { class: "number" }, String(value)));
      return el("tr", {}, ...cells, el("td", { class: "bars" }, bar));
    }));
  }
}
