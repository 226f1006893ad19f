"use strict";

// Draws the figures in the page's own colours, and draws them anew when the reader changes between light and dark.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const figures = JSON.parse(document.getElementById("figures").textContent);
const touch = window.matchMedia("(pointer: coarse)").matches; // there a drag scrolls the page

// While the page is drawn, what is drawn already is shown that often: each time costs a layout of the whole page.
const SHOW_EVERY_MS = 300;

function coloured(layout) {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--text").trim();
  const grid = dark.matches ? "rgba(255,255,255,.14)" : "rgba(0,0,0,.12)";
  const font = { ...layout.font, color: text };
  const hoverlabel = { bgcolor: style.getPropertyValue("--back").trim(), font: { color: text } };
  const axes = Object.keys(layout).filter((key) => /^[xy]axis/.test(key));
  const drawn = axes.map((key) => [key, { ...layout[key], gridcolor: grid, linecolor: grid }]);
  return { ...layout, font, hoverlabel, ...Object.fromEntries(drawn), ...(touch && { dragmode: false }) };
}

async function draw() {
  const config = { responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover" };
  let shown = 0;
  for (const [id, { data, layout }] of Object.entries(figures)) {
    await Plotly.newPlot(document.getElementById(id), data, coloured(layout), config);
    if (performance.now() < shown + SHOW_EVERY_MS) continue;
    await new Promise((resume) => setTimeout(resume));
    shown = performance.now();
  }
  document.documentElement.dataset.drawn = Math.round(performance.now());
}

dark.addEventListener("change", () => {
  for (const [id, { data, layout }] of Object.entries(figures)) {
    Plotly.react(document.getElementById(id), data, coloured(layout));
  }
});

// A cell's value: its number where it has one, else its text in small letters.
const valueOf = (cell) => ("value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.toLowerCase());

function sort(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const sign = head.ariaSort === "ascending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row.cells[column]), row]);
  rows.sort(([a], [b]) => compareValues(a, b, sign));
  for (const cell of table.tHead.rows[0].cells) cell.ariaSort = null;
  head.ariaSort = sign === 1 ? "ascending" : "descending";
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function filter(table, text, count) {
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim().toLowerCase());
  const holds = conditions(text, names, (row, column) => valueOf(row.cells[column]), (row) => row.textContent);
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) row.hidden = !holds(row);
  count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => cell.addEventListener("click", () => sort(table, column)));
}
for (const input of document.querySelectorAll(".filter input")) {
  const table = document.getElementById(input.dataset.table);
  const count = input.parentElement.querySelector("output");
  input.addEventListener("input", () => filter(table, input.value, count));
  filter(table, input.value, count);
}
draw();
