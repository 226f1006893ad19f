// The trials that the reader chose, side by side: configurations, curves of any metric, output, buttons.

import { Chart } from "./chart.js";
import { refusal } from "./connection.js";
import { el, patchRows, say, short } from "./dom.js";
import { view } from "./scale.js";

const SHADES = ["completed", "best", "running", "paused", "stopped", "pending"];
const LOG_EVERY_MS = 2000, ASK_AGAIN_MS = 5000, LONGEST_LOG = 200_000;
const ESCAPES = /\x1b\[[0-9;?]*[ -/]*[@-~]/g; // colours and moves of a terminal

export class Chosen {
  constructor(address, control, drop) {
    Object.assign(this, { address, control, drop, details: new Map(), asked: new Map(), log: null });
    this.title = el("h2");
    this.metric = el("select", { "aria-label": "metric", onchange: () => this.plot() });
    this.chart = new Chart({ name: "chosen trials", height: 260, tell: (path, i) => `#${path.of}: ${short(path.ys[i])} at ${short(path.xs[i])}` });
    this.head = el("thead");
    this.body = el("tbody");
    this.table = el("table", {}, this.head, this.body);
    this.told = el("p", { class: "caption" });
    this.output = el("pre", { class: "log", tabindex: "0", "aria-label": "output" });
    this.element = el("section", { "data-part": "chosen" }, this.title,
      el("div", { class: "sides" }, el("div", { class: "wide" }, this.table), el("div", {}, this.metric, this.chart.element)),
      el("div", {}, this.told, this.output));
    this.element.hidden = true;
    setInterval(() => { if (this.log && !document.hidden) this.readLog(); }, LOG_EVERY_MS);
  }

  draw(store, chosen) {
    this.store = store;
    this.numbers = [...chosen].filter((number) => store.trials.has(number));
    this.element.hidden = !this.numbers.length;
    if (this.element.hidden) { this.log = null; this.focus = null; return; }
    const trials = this.numbers.map((number) => store.trials.get(number));
    say(this.title, trials.length > 1 ? `Trials ${trials.map((trial) => `#${trial.number}`).join(", ")}` : `Trial #${trials[0].number}`);
    this.compare(store, trials);
    for (const trial of trials) this.ask(trial);
    if (!this.numbers.includes(this.focus)) this.show(this.numbers[this.numbers.length - 1]);
    this.plot();
  }

  // A row for each fact, a column for each trial; rows that differ stand out.
  compare(store, trials) {
    const { run } = store, several = trials.length > 1;
    const facts = [
      ["status", (trial) => trial.status], ...run.metrics.map((metric, i) => [metric, (trial) => trial.best[i]]),
      [run.unit, (trial) => trial.x], ["seconds", (trial) => trial.seconds], ["host", (trial) => trial.host],
      ["why", (trial) => trial.why], ["added by", (trial) => trial.origin], ...run.parameters.map((name, i) => [name, (trial) => trial.values[i]]),
    ];
    const head = el("tr", {}, el("th"), ...trials.map((trial) => this.heading(trial)));
    const rows = facts.map(([name, of]) => {
      const told = trials.map((trial) => String(of(trial) ?? ""));
      if (told.every((text) => text === "")) return null;
      const differs = several && new Set(told).size > 1;
      return el("tr", { class: differs ? "differs" : "" }, el("th", {}, name), ...told.map((text) => el("td", { class: name === "why" ? "words" : "" }, text)));
    });
    const buttons = trials.map((trial) => this.control.buttons(store, trial));
    const last = buttons.some((found) => found.length) ? el("tr", {}, el("th"), ...buttons.map((found) => el("td", { class: "actions" }, ...found))) : null;
    patchRows(this.head, [head]);
    patchRows(this.body, [last, ...rows].filter(Boolean));
  }

  heading(trial) {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = `var(--${this.shade(trial.number)})`;
    const close = el("button", { class: "link", title: "leave out", "aria-label": `leave out trial ${trial.number}`, onclick: () => this.drop(trial.number) }, "✕");
    return el("th", {}, swatch, el("button", { class: "link", title: "its output", onclick: () => this.show(trial.number) }, `#${trial.number} (${trial.id})`), " ", close);
  }

  shade(number) {
    return SHADES[this.numbers.indexOf(number) % SHADES.length];
  }

  // Asks for all metrics of a trial, again if it has reported since.
  async ask(trial) {
    const key = `${trial.x} ${trial.seconds} ${trial.status}`;
    if (this.asked.get(trial.number) === key) return;
    this.asked.set(trial.number, key);
    const again = () => {
      this.asked.delete(trial.number);
      if (this.numbers.includes(trial.number)) this.ask(trial);
    };
    try {
      const answer = await fetch(`${this.address}/trials/${trial.number}`);
      if (!answer.ok) return void setTimeout(again, ASK_AGAIN_MS); // why: `readLog` is refused, too, and says it
      this.details.set(trial.number, await answer.json());
      this.plot();
    } catch {
      setTimeout(again, ASK_AGAIN_MS);
    }
  }

  plot() {
    const known = this.numbers.map((number) => this.details.get(number)).filter(Boolean);
    const metrics = [...new Set(known.flatMap((one) => one.metrics))];
    if ([...this.metric.options].map((one) => one.value).join("\n") !== metrics.join("\n")) {
      const { value } = this.metric;
      this.metric.replaceChildren(...metrics.map((name) => el("option", { value: name }, name)));
      if (metrics.includes(value)) this.metric.value = value;
    }
    const wanted = this.metric.value, { run } = this.store, i = run.objectives.findIndex(([name]) => name === wanted);
    const paths = known.map((one) => ({ xs: one.x, ys: one.y[one.metrics.indexOf(wanted)] ?? one.x.map(() => null), of: one.number }));
    const ys = paths.flatMap((path) => path.ys).filter((y) => y !== null), end = Math.max(1, ...paths.flatMap((path) => path.xs));
    const range = view(ys, i >= 0 && run.objectives[i][1] === "max" ? 1 : -1, i >= 0 ? run.extreme : Infinity);
    const layers = paths.flatMap((path) => [{ colour: this.shade(path.of), width: 2, paths: [path] }, { kind: "dots", colour: this.shade(path.of), width: path.xs.length > 60 ? 1 : 2.5, paths: [path] }]);
    this.chart.show({ range: [0, end], title: `${run.unit}s`, whole: true }, { range, title: wanted }, layers);
  }

  show(number) {
    this.focus = number;
    this.log = { number, end: "" };
    say(this.told, `Output of trial #${number}`);
    say(this.output, "");
    this.output.hidden = true;
    this.readLog();
  }

  async readLog() {
    const { log } = this;
    if (log.busy) return;
    log.busy = true;
    try {
      const answer = await fetch(`${this.address}/trials/${log.number}/log?after=${log.end}`);
      if (log !== this.log) return;
      if (!answer.ok) return say(this.told, await refusal(answer));
      const { text, begin, end, more } = await answer.json();
      if (!log.end) {
        log.cut = begin ? `, the last ${end - begin} bytes` : "";
        this.output.textContent = "";
      }
      const nothing = `Trial #${log.number} has printed nothing yet, or its output is gone.`;
      say(this.told, end ? `Output of trial #${log.number}${log.cut}` : nothing);
      log.end = more ? "" : end || ""; // a trial that prints faster than it is read: its end the next time
      if (text) this.append(text);
    } catch {
      // the next one may come through
    } finally {
      log.busy = false;
    }
  }

  append(text) {
    const { output } = this, below = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    const all = output.textContent + text.replace(ESCAPES, "").replace(/\r+\n/g, "\n");
    output.textContent = all.slice(-LONGEST_LOG);
    output.hidden = false;
    if (below) output.scrollTop = output.scrollHeight;
  }
}
