// The table of trials: sorted and filtered as that of the report, with as many rows as a page can take.

import { comparable, el, say } from "./dom.js";

const STEP = 100; // rows; more at a click

export class Trials {
  constructor(choose) {
    this.choose = choose;
    this.shown = STEP;
    this.sorted = null; // [column, sign]; null: best first
    this.names = [];
    this.rows = new Map(); // by number: {row, key}
    this.head = el("tr");
    this.body = el("tbody");
    this.count = el("output");
    const hint = "filter: words, or conditions such as lr<0.01 status=stopped";
    this.filter = el("input", { type: "search", placeholder: hint, "aria-label": "filter", oninput: () => this.draw(this.store, this.chosen) });
    this.more = el("button", { class: "more", onclick: () => { this.shown += 5 * STEP; this.draw(this.store, this.chosen); } });
    this.element = el("section", { "data-part": "trials" }, el("h2", {}, "Trials"),
      el("p", { class: "caption" }, "Best first; click a heading to sort, and a row to see the trial, or to compare several."),
      el("div", { class: "filter" }, this.filter, this.count),
      el("div", { class: "scroll" }, el("table", { id: "trial-table", class: "sortable" }, el("thead", {}, this.head), this.body)), this.more);
  }

  columns(store) {
    const { run } = store, label = run.objectives.length > 1 ? "" : "best ";
    return ["#", "trial", "status", ...run.metrics.map((metric) => label + metric), run.unit, "seconds", ...run.parameters, "why"];
  }

  cells(store, trial) {
    const { run } = store;
    const best = run.metrics.map((_, i) => trial.best[i] ?? "");
    const config = run.parameters.map((_, i) => trial.values[i] ?? "");
    return [String(trial.number), trial.id, trial.status, ...best, String(trial.x ?? ""), String(trial.seconds || ""), ...config, trial.why];
  }

  draw(store, chosen) {
    [this.store, this.chosen] = [store, chosen];
    const names = this.columns(store);
    if (names.join("\n") !== this.names.join("\n")) this.begin(names);
    const told = new Map([...store.trials.values()].map((trial) => [trial, this.cells(store, trial)]));
    const value = (trial, column) => comparable(told.get(trial)[column]);
    const holds = conditions(this.filter.value, names.map((name) => name.toLowerCase()), value, (trial) => told.get(trial).join(" "));
    const fits = [...told.keys()].filter(holds);
    const [column, sign] = this.sorted ?? [3, store.run.objectives[0][1] === "max" ? -1 : 1];
    const front = new Set(store.head.front);
    const rank = (trial) => {
      if (this.sorted) return 0;
      if (trial.number === store.head.best) return -1;
      return !trial.feasible ? 2 : front.size && !front.has(trial.number) ? 1 : 0;
    };
    fits.sort((a, b) => rank(a) - rank(b) || compareValues(value(a, column), value(b, column), sign) || a.number - b.number);
    const rows = fits.slice(0, this.shown).map((trial) => this.row(trial, told.get(trial)));
    [...this.head.cells].forEach((cell, i) => cell.classList.toggle("number", rows.some((row) => row.cells[i].className === "number")));
    rows.forEach((row, i) => { if (this.body.rows[i] !== row) this.body.insertBefore(row, this.body.rows[i] ?? null); });
    while (this.body.rows.length > rows.length) this.body.lastElementChild.remove();
    say(this.count, `${fits.length} of ${told.size}`);
    this.more.hidden = fits.length <= rows.length;
    say(this.more, `${fits.length - rows.length} more`);
  }

  begin(names) {
    this.names = names;
    this.rows.clear();
    this.body.replaceChildren();
    this.head.replaceChildren(...names.map((name, column) => el("th", {}, el("button", { onclick: () => this.sort(column) }, name))));
  }

  sort(column) {
    const sign = this.sorted?.[0] === column ? -this.sorted[1] : 1;
    this.sorted = [column, sign];
    [...this.head.cells].forEach((cell, i) => { cell.ariaSort = i === column ? (sign > 0 ? "ascending" : "descending") : null; });
    this.draw(this.store, this.chosen);
  }

  // The row of a trial; only cells that are other than before are written.
  row(trial, told) {
    let found = this.rows.get(trial.number);
    if (!found) {
      const row = el("tr", { tabindex: "0", onclick: () => this.choose(trial.number), onkeydown: (event) => { if (event.key === "Enter") this.choose(trial.number); } });
      row.append(...told.map((_, i) => el("td", { class: i === told.length - 1 ? "words" : "" })));
      this.rows.set(trial.number, (found = row));
    }
    told.forEach((text, i) => {
      say(found.cells[i], text);
      if (i < told.length - 1) found.cells[i].classList.toggle("number", typeof comparable(text) === "number");
    });
    found.dataset.status = trial.status;
    found.ariaSelected = String(this.chosen.has(trial.number));
    return found;
  }
}
