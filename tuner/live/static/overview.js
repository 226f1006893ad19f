// The head of the page: how the search stands, in words and numbers; the trials at work; failures; commands.

import { CONNECTING, show } from "./connection.js";
import { duration, el, patchRows, say, section } from "./dom.js";

const STATUSES = ["completed", "stopped", "failed", "running", "paused", "pending"];
const MOST_ROWS = 200;

function tile(name) {
  const value = el("div", { class: "value" }), more = el("div", { class: "more" });
  return { element: el("div", { class: "tile", "data-tile": name }, el("div", { class: "name" }, name), value, more), value, more };
}

export class Overview {
  constructor(name, choose) {
    this.state = el("span", { class: "state" });
    this.link = el("span", { class: "link" }, CONNECTING);
    this.words = el("p", { class: "caption" });
    this.notices = el("div");
    this.lines = el("ul");
    this.tiles = Object.fromEntries(["best", "trials", "time", "slots", "resources"].map((one) => [one, tile(one)]));
    this.tiles.best.element.addEventListener("click", () => this.best && choose(this.best));
    this.bar = el("div", { class: "stack" });
    this.tiles.trials.element.append(this.bar);
    this.actions = el("div", { class: "actions" });
    this.element = el("header", {},
      el("div", { class: "line" }, el("h1", {}, name), this.state, this.link), this.words, this.actions, this.notices,
      el("div", { class: "numbers" }, ...Object.values(this.tiles).map((one) => one.element)), this.lines);
  }

  connection(told) {
    show(this.link, told);
  }

  now(store) {
    const { now } = store;
    say(this.state, now.paused ? "paused" : now.state);
    this.state.dataset.is = now.paused ? "paused" : now.state;
    say(this.words, now.state === "running" ? "" : now.words);
    this.tiles.slots.element.hidden = now.slots === undefined;
    say(this.tiles.slots.value, `${now.busy} of ${now.slots}`);
    const limit = now.limit === null || now.limit === undefined ? "" : `limited to ${now.limit}`;
    say(this.tiles.slots.more, [now.queued ? `${now.queued} queued` : "", limit].filter(Boolean).join(", "));
    const [first, ...others] = now.resources ?? [];
    this.tiles.resources.element.hidden = !first;
    if (!first) return;
    const told = ([name, used, all]) => `${used} of ${all} ${name}s`;
    say(this.tiles.resources.value, told(first));
    say(this.tiles.resources.more, others.map(told).join(", "));
  }

  draw(store) {
    const { run, head, elapsed } = store, best = store.trials.get(head.best), budget = run.budget;
    this.best = head.best;
    const several = head.front.length;
    say(this.tiles.best.value, several ? `front of ${several}` : best ? best.best[0] : "none yet");
    const which = several ? `e.g. #${best.number}: ${best.best.join(", ")}` : best ? `${run.metrics[0]}, trial #${best.number}` : run.metrics[0];
    say(this.tiles.best.more, which);
    say(this.tiles.trials.value, budget.trials ? `${head.started} of ${budget.trials}` : head.started);
    const counts = STATUSES.filter((status) => head.counts[status]);
    say(this.tiles.trials.more, counts.map((status) => `${head.counts[status]} ${status}`).join(", "));
    this.bar.replaceChildren(...counts.map((status) => {
      const part = el("span", { "data-status": status });
      part.style.flexGrow = head.counts[status];
      return part;
    }));
    say(this.tiles.time.value, duration(elapsed));
    const spent = [budget.wall_clock ? `of ${duration(budget.wall_clock)}` : "", `${Math.round(head.epochs)}${budget.epochs ? ` of ${budget.epochs}` : ""} ${run.unit}s`];
    say(this.tiles.time.more, spent.filter(Boolean).join(", "));
    this.lines.replaceChildren(...head.lines.map((line) => el("li", {}, line)));
    const notices = [...run.notices, ...(head.damage ? [`The journal is damaged: ${head.damage}`] : [])];
    this.notices.replaceChildren(...notices.map((notice) => el("p", { class: "notice" }, notice)));
  }
}

// A list, the newest first.
class Listing {
  constructor(id, title, names) {
    this.body = el("tbody");
    const head = el("tr", {}, ...names.map((name) => el("th", {}, name)));
    this.element = section(id, title, el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), this.body)));
    this.element.hidden = true;
  }

  fill(rows) {
    this.element.hidden = !rows.length;
    patchRows(this.body, rows.slice(0, MOST_ROWS));
  }
}

const link = (number, choose) => (number === null ? "" : el("button", { class: "link", onclick: () => choose(number) }, `#${number}`));
const cells = (...values) => values.map((value) => el("td", {}, value instanceof Node ? value : String(value ?? "")));
const words = (text) => el("td", { class: "words" }, text);

export class Working extends Listing {
  constructor(choose) {
    super("working", "At work", ["trial", "does", "for", "progress", "last", "best", "GPU", "host"]);
    this.choose = choose;
  }

  draw(store) {
    const passed = (since) => duration(Math.max(0, Date.now() / 1000 - since));
    this.fill((store.now.states ?? []).map(([number, state, since]) => {
      const trial = store.trial(number), { run } = store;
      const use = trial.gpu === null || trial.gpu === undefined ? "" : `${trial.gpu} %`;
      const progress = trial.x === null || trial.x === undefined ? "" : `${trial.x}${run?.max_t ? ` of ${run.max_t}` : ""}`;
      return el("tr", {}, ...cells(link(number, this.choose), state, passed(since), progress, trial.last, trial.best[0], use, trial.host));
    }));
  }
}

export class Failures extends Listing {
  constructor(choose) {
    super("failures", "Failures", ["trial", "at", "after report", "kind", "what it met", "then"]);
    this.choose = choose;
  }

  draw(store) {
    this.fill(store.failures.map((one) => el("tr", {},
      ...cells(link(one.trial, this.choose), duration(one.at), one.step, one.kind), words(one.message),
      ...cells(one.retried ? "tried again" : "given up"))).reverse());
  }
}

export class Commands extends Listing {
  constructor(choose) {
    super("commands", "Who did what", ["at", "who", "what", "with", "trials", "outcome"]);
    this.choose = choose;
  }

  draw(store) {
    this.fill(store.commands.map((one) => {
      const made = el("td", {}, ...one.trials.flatMap((number) => [link(number, this.choose), " "]));
      return el("tr", {}, ...cells(duration(one.at), one.by, one.do, one.with), made, words(one.done ? "done" : `refused: ${one.reason}`));
    }).reverse());
  }
}
