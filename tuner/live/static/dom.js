// Elements of the page. What comes from a run is text, and never HTML.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function section(id, title, ...children) {
  return el("section", { "data-part": id }, el("h2", {}, title), ...children);
}

// Puts a text in its place, if it is another one: what stays the same is not laid out again.
export function say(element, text) {
  const told = text === null || text === undefined ? "" : String(text);
  if (element.textContent !== told) element.textContent = told;
}

// Makes the children of `place` like those that are wanted. Equal ones stay: they keep the focus and the clicks.
export function patch(place, wanted) {
  patchEach(place, wanted, (old, made) => {
    if (old.outerHTML === made.outerHTML) return;
    const had = old.contains(document.activeElement);
    old.replaceWith(made);
    if (had) (made.matches("button") ? made : made.querySelector("button"))?.focus();
  });
}

// The same with the rows of a table, cell by cell.
export function patchRows(body, wanted) {
  patchEach(body, wanted, (old, made) => {
    old.className = made.className;
    patch(old, [...made.cells]);
  });
}

function patchEach(place, wanted, update) {
  const old = [...place.children];
  wanted.forEach((made, i) => (i < old.length ? update(old[i], made) : place.append(made)));
  for (const extra of old.slice(wanted.length)) extra.remove();
}

// The colour of a status, or of the best: one of the variables of the style sheet.
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888";

// A duration as the command line writes it.
export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}h${two(minutes)}m${two(rest)}s` : `${minutes}m${two(rest)}s`;
}

// A number of a figure.
export const short = (value) => (value === null || !Number.isFinite(value) ? "" : String(Number(value.toPrecision(5))));

// A cell as a table sorts it: a number where its text is one.
export const comparable = (text) => {
  if (text === null || text === undefined || text === "") return "";
  const number = Number(text);
  return Number.isNaN(number) ? String(text).toLowerCase() : number;
};

// Calls `act` at most once in `every` milliseconds, and only while somebody can see the page.
export function gently(act, every = 300) {
  let wanted = false, waiting = false;
  const run = () => {
    waiting = false;
    if (!wanted || document.hidden) return;
    wanted = false;
    act();
    waiting = true;
    setTimeout(run, every);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted && !waiting) run(); });
  return () => {
    wanted = true;
    if (waiting) return;
    waiting = true;
    setTimeout(run); // no animation frame: a browser gives none to a window that another one covers
  };
}
