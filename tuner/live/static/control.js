// Commands to the search: each is sent with the user's name. Its answer comes back, and with the events to all pages.

import { refusal } from "./connection.js";
import { el, say } from "./dom.js";

const BUDGETS = [["trials", "trials"], ["wall_clock", "time, such as 2h30m"], ["epochs", "epochs"], ["gpu_hours", "GPU hours"], ["cost", "cost"]];

export class Control {
  // may: the kinds of commands that the reader may send; none if he may only look.
  constructor(address, user, may) {
    this.address = address;
    this.user = user;
    this.may = new Set(may);
    this.told = el("p", { class: "answer", role: "status" });
    this.sent = new Set(); // commands that wait for their answer: a second click sends none of them again
    this.asks = false; // whether a dialog is about to open
  }

  async send(does, given = {}) {
    const key = JSON.stringify([does, given]);
    if (this.sent.has(key)) return;
    this.sent.add(key);
    say(this.told, `${does} …`);
    this.told.dataset.is = "waiting";
    try {
      const body = JSON.stringify({ do: does, arguments: given });
      const headers = { "Content-Type": "application/json" };
      const answer = await fetch(`${this.address}/commands`, { method: "POST", headers, body });
      if (!answer.ok) return this.answer(`${does}: ${await refusal(answer)}`, false);
      const told = await answer.json();
      this.answer(told.done ? `${does}: done` : `${does} was refused: ${told.reason}`, told.done);
    } catch {
      this.answer(`${does}: the server does not answer; it may be done all the same: see "Who did what"`, false);
    } finally {
      this.sent.delete(key);
    }
  }

  answer(text, done) {
    say(this.told, text);
    this.told.dataset.is = done ? "done" : "refused";
  }

  // The buttons of a search.
  draw(store, place) {
    const { now, run } = store, running = ["running", "silent"].includes(now.state);
    const known = run && names(run).length > 0, narrows = run && Object.keys(run.space).length > 0;
    const key = [running, now.paused, known, narrows].join();
    if (place.dataset.for === key) return;
    place.dataset.for = key;
    const pauses = now.paused ? this.button("continue", "Continue") : this.button("pause", "Pause");
    const budget = this.button("budget", "Budget …", "more budget", () => this.budget(store));
    const add = known && this.button("add", "Add …", "add a configuration", () => this.add(store.run));
    const space = narrows && this.button("space", "Space …", "narrow the search space", () => this.space(store.run.space));
    const shown = (running ? [pauses, budget, add, space] : []).filter(Boolean);
    place.replaceChildren(...shown, ...(shown.length ? [el("span", { class: "caption" }, `as ${this.user}`)] : []), this.told);
  }

  // The buttons of a trial.
  buttons(store, { number, id, status }) {
    if (!["running", "silent"].includes(store.now.state)) return [];
    const open = !["completed", "stopped", "failed"].includes(status), about = { trial: id };
    return [
      open && this.button("stop-trial", "Stop", `stop trial ${number}`, undefined, about),
      open && this.button("keep-trial", "Keep", `keep trial ${number}: the scheduler does not stop it`, undefined, about),
      this.button("clone", "Clone …", `clone trial ${number}`, () => this.clone(store.trials.get(number))),
    ].filter(Boolean);
  }

  // A button that sends a command, or does what comes before; null if the reader may not.
  button(does, text, title = text, act = () => this.send(does, given), given = {}) {
    const attributes = { class: "action", title, "aria-label": title, "data-trial": given.trial, onclick: act };
    return this.may.has(does) ? el("button", attributes, text) : null;
  }

  budget(store) {
    const now = { ...store.run.budget, cost: store.run.budget.cost?.max };
    const fields = BUDGETS.map(([name, label]) => field(name, label, now[name] ?? ""));
    form("More budget", "New totals; what stays empty does not change.", fields, (edited) => {
      if (Object.keys(edited).length) this.send("budget", values(edited));
    });
  }

  add(run) {
    const hint = (name) => domain(run.space[name]).map(([key, text]) => `${key} ${text}`.trim()).join(", ");
    const fields = names(run).map((name) => field(name, name, "", hint(name)));
    form("Add a configuration", "It runs next. Constants stay empty, and what does not apply.", fields, (edited) => {
      if (Object.keys(edited).length) this.send("add", { config: values(edited) });
    });
  }

  space(space) {
    const open = (name) => domain(space[name]).filter(([key]) => key !== "when"); // a condition cannot change
    const fieldsOf = (name) => open(name).map(([key, text]) => (key ? [`${name}.${key}`, text] : [name, text]));
    const fields = names({ space }).flatMap(fieldsOf).map(([name, text]) => field(name, name, text));
    form("Narrow the search space", "Later suggestions come from it. Running trials continue.", fields, (edited) => {
      if (Object.keys(edited).length) this.send("space", { search_space: values(edited) });
    });
  }

  async clone(trial) {
    if (this.asks) return;
    this.asks = true;
    try {
      const answer = await fetch(`${this.address}/trials/${trial.number}`);
      if (!answer.ok) return this.answer(await refusal(answer), false);
      this.askClone(trial, (await answer.json()).values);
    } catch {
      this.answer("clone: the server does not answer", false);
    } finally {
      this.asks = false;
    }
  }

  askClone(trial, known) {
    const from = el("input", { type: "checkbox", name: " checkpoint" });
    const fields = Object.entries(known).map(([name, value]) => field(name, name, written(value)));
    const checkbox = el("label", { class: "check" }, from, "start from its latest checkpoint");
    form(`Clone trial #${trial.number}`, "A new trial with this configuration, as you change it.", [...fields, checkbox], (edited) => {
      this.send("clone", { trial: trial.id, changes: values(edited, known), checkpoint: from.checked });
    });
  }
}

const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// The parameters of a search space; those of the trials if it is written in Python.
function names({ space, parameters }) {
  const searched = Object.keys(space);
  return searched.length ? searched : parameters;
}

// The parts of a domain, each with its text: ["loguniform", "[0.1,1]"]. A constant has one without a name.
function domain(told) {
  if (told === undefined) return [];
  const parts = typeof told === "object" && told !== null && !Array.isArray(told) ? Object.entries(told) : [["", told]];
  return parts.map(([key, value]) => [key, written(value)]);
}

// Texts that were edited as values: JSON, else words. What was a text stays one.
function values(edited, known = {}) {
  return Object.fromEntries(Object.entries(edited).map(([name, text]) => [name, typeof known[name] === "string" ? text : plain(text)]));
}

function plain(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function field(name, label, value, placeholder = "") {
  const input = el("input", { name, value: String(value), placeholder, title: placeholder, autocomplete: "off" });
  input.dataset.was = input.value;
  return el("label", {}, el("span", {}, label), input);
}

// A dialog; `act` gets the text of each field that was edited and is not empty.
function form(title, what, fields, act) {
  const dialog = el("dialog", {}, el("form", { method: "dialog", onsubmit: (event) => {
    if (event.submitter?.value !== "send") return;
    const edited = [...dialog.querySelectorAll("input[data-was]")].filter((input) => input.value !== input.dataset.was);
    act(Object.fromEntries(edited.map((input) => [input.name, input.value.trim()]).filter(([, text]) => text !== "")));
  } }, el("h2", {}, title), el("p", { class: "caption" }, what), ...fields,
    el("div", { class: "actions" }, el("button", { value: "send", class: "action" }, "Send"), el("button", { value: "cancel", class: "action", formnovalidate: true }, "Cancel"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
