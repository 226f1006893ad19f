// The page of all searches.

import { CONNECTING, follow, refusedEvents, show } from "./connection.js";
import { el, gently, say } from "./dom.js";

const NAMES = ["search", "user", "state", "place", "best", "progress", "why"];
const EVENTS = "searches/events";

const rows = new Map(); // by name: what the server tells
const made = new Map(); // by name: the row of the table
let order = [];

const link = el("span", { class: "link" }, CONNECTING), problem = el("p", { class: "notice", hidden: true });
const count = el("output"), body = el("tbody");
const filter = el("input", { type: "search", placeholder: "filter: words, or conditions such as user=ada state=running", "aria-label": "filter", oninput: () => draw() });
document.querySelector("main").append(
  el("header", {}, el("div", { class: "line" }, el("h1", {}, "Searches"), link), problem),
  el("div", { class: "filter" }, filter, count),
  el("div", { class: "wide" }, el("table", { id: "searches" }, el("thead", {}, el("tr", {}, ...NAMES.map((name) => el("th", {}, name)))), body)));

const told = (row) => [row.name, row.user, row.state, row.position ?? "", row.best, row.progress, row.reason];

function rowOf(row) {
  let found = made.get(row.name);
  if (!found) {
    found = el("tr", {}, ...NAMES.map((name) => el("td", { class: name === "why" ? "words" : "" })));
    made.set(row.name, found);
  }
  told(row).forEach((text, i) => { if (i > 0) say(found.cells[i], text); });
  const name = row.has_page ? el("a", { href: `runs/${encodeURIComponent(row.name)}` }, row.name) : row.name;
  if (found.dataset.page !== String(row.has_page)) found.cells[0].replaceChildren(name);
  found.dataset.page = row.has_page;
  return found;
}

const draw = gently(() => {
  const all = order.map((name) => rows.get(name)).filter(Boolean);
  const value = (row, i) => { const text = told(row)[i]; return typeof text === "number" ? text : text.toLowerCase(); };
  const fits = all.filter(conditions(filter.value, NAMES, value, (row) => told(row).join(" ")));
  fits.map(rowOf).forEach((row, i) => { if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null); });
  while (body.rows.length > fits.length) body.lastElementChild.remove();
  say(count, `${fits.length} of ${all.length}`);
  document.documentElement.dataset.drawn = all.length;
});

function take(news) {
  for (const row of news.rows) rows.set(row.name, row);
  order = news.order;
  const there = new Set(order);
  for (const name of [...rows.keys()]) if (!there.has(name)) { rows.delete(name); made.delete(name); }
  problem.hidden = !news.problem;
  say(problem, news.problem);
  draw();
}

follow(() => refusedEvents(EVENTS), () => EVENTS, take, (told) => show(link, told));
