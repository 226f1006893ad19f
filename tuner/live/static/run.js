// The live page of a run.

import { Chosen } from "./chosen.js";
import { connect } from "./connection.js";
import { Control } from "./control.js";
import { gently } from "./dom.js";
import { BestSoFar, Busy, Curves, Rungs } from "./figures.js";
import { Commands, Failures, Overview, Working } from "./overview.js";
import { Store } from "./store.js";
import { Trials } from "./trials.js";

const MOST_CHOSEN = 6;

const address = location.pathname.replace(/\/$/, "");
const { run, user, commands: may } = document.body.dataset;
const store = new Store(), chosen = new Set();

function choose(number) {
  if (!chosen.delete(number)) {
    if (chosen.size === MOST_CHOSEN) chosen.delete(chosen.values().next().value);
    chosen.add(number);
  }
  drawAll();
  if (chosen.size) parts.chosen.element.scrollIntoView({ block: "nearest" });
}

const control = new Control(address, user, may.split(" "));
const parts = {
  overview: new Overview(run, choose),
  best: new BestSoFar(choose),
  curves: new Curves(choose),
  chosen: new Chosen(address, control, choose),
  rungs: new Rungs(),
  busy: new Busy(),
  working: new Working(choose),
  trials: new Trials(choose),
  failures: new Failures(choose),
  commands: new Commands(choose),
};

const drawNow = gently(() => {
  parts.overview.now(store);
  control.draw(store, parts.overview.actions);
  if (store.run) parts.working.draw(store);
});

const drawAll = gently(() => {
  if (!store.run || !store.head) return;
  for (const part of Object.values(parts)) part.draw(store, chosen);
  document.documentElement.dataset.drawn = store.id;
});

const grid = (...children) => { const made = document.createElement("div"); made.className = "sides"; made.append(...children); return made; };
const { overview, best, curves, rungs, busy, working, trials, failures, commands } = parts;
document.querySelector("main").append(
  overview.element, grid(best.element, curves.element), parts.chosen.element, grid(rungs.element, busy.element),
  working.element, trials.element, failures.element, commands.element);

connect(address, store, (told) => {
  if (told.whole) chosen.clear();
  if (Object.keys(told).some((name) => !["id", "whole", "elapsed", "now"].includes(name))) drawAll();
  drawNow();
}, (state) => overview.connection(state));
setInterval(drawNow, 1000); // durations grow
