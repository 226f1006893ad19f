// A figure on a canvas: lines, steps and dots on two axes, drawn anew in some milliseconds however many there are.

import { colour, el } from "./dom.js";
import { label, ticks } from "./scale.js";

const LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 40;
const NEAR = 24; // pixels from the pointer to what it means

export class Chart {
  // choose: called with the `of` of the path that was clicked. tell: its text, by path and point.
  constructor({ height = 300, tell = null, choose = null, name }) {
    this.canvas = el("canvas", { role: "img", "aria-label": name });
    this.tip = el("div", { class: "tip", hidden: true });
    this.element = el("div", { class: "chart" }, this.canvas, this.tip);
    this.element.style.height = `${height}px`;
    this.height = height;
    this.tell = tell;
    this.drawn = null;
    new ResizeObserver(() => this.draw()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    if (choose) {
      this.canvas.addEventListener("click", (event) => {
        const found = this.nearest(event);
        if (found && found.path.of !== undefined) choose(found.path.of);
      });
    }
  }

  // x, y: {range: [low, high], title, whole}. layers: {kind, colour, width, alpha, paths: [{xs, ys, of}]} in order;
  // a colour is the name of one, so that it changes with the page's between light and dark.
  show(x, y, layers) {
    this.drawn = { x, y, layers };
    this.draw();
  }

  at(x, y) {
    const { x: { range: [left, right] }, y: { range: [low, high] } } = this.drawn;
    return [
      LEFT + ((x - left) / (right - left || 1)) * (this.width - LEFT - RIGHT),
      this.height - BOTTOM - ((y - low) / (high - low || 1)) * (this.height - TOP - BOTTOM),
    ];
  }

  draw() {
    this.width = this.element.clientWidth;
    if (!this.drawn || this.width < 80) return;
    const ratio = Math.min(window.devicePixelRatio || 1, 2), { canvas } = this;
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    this.axes(pen);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP - 4, this.width - LEFT - RIGHT + 4, this.height - TOP - BOTTOM + 8);
    pen.clip();
    for (const layer of this.drawn.layers) this.layer(pen, layer);
    pen.restore();
    canvas.dataset.points = this.drawn.layers.reduce((sum, one) => sum + one.paths.reduce((n, p) => n + p.xs.length, 0), 0);
  }

  axes(pen) {
    const style = getComputedStyle(this.element), { x, y } = this.drawn;
    pen.font = `12px ${style.fontFamily}`;
    pen.fillStyle = style.color;
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.lineWidth = 1;
    const bottom = this.height - BOTTOM, right = this.width - RIGHT;
    pen.beginPath();
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of ticks(...y.range, Math.min(7, this.height / 45)).filter((v) => !y.whole || Number.isInteger(v))) {
      const [, top] = this.at(0, value);
      pen.moveTo(LEFT, Math.round(top) + 0.5);
      pen.lineTo(right, Math.round(top) + 0.5);
      pen.fillText(label(value), LEFT - 6, top);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const value of ticks(...x.range, this.width / 90).filter((v) => !x.whole || Number.isInteger(v))) {
      const [left] = this.at(value, 0);
      pen.moveTo(Math.round(left) + 0.5, TOP);
      pen.lineTo(Math.round(left) + 0.5, bottom);
      pen.fillText(label(value), left, bottom + 5);
    }
    pen.stroke();
    pen.fillText(x.title, (LEFT + right) / 2, this.height - 15, right - LEFT);
    pen.save();
    pen.translate(2, (TOP + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(y.title, 0, 0, bottom - TOP);
    pen.restore();
  }

  layer(pen, { kind, colour: name, width = 1.2, alpha = 1, paths }) {
    pen.globalAlpha = alpha;
    pen.strokeStyle = pen.fillStyle = colour(name);
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.beginPath();
    for (const { xs, ys } of paths) {
      if (kind === "dots") this.dots(pen, xs, ys, width);
      else this.line(pen, xs, ys, kind === "steps");
    }
    if (kind === "dots") pen.fill();
    else pen.stroke();
    pen.globalAlpha = 1;
  }

  // A line has a gap where a value is missing, and where a trial went back to an earlier point.
  line(pen, xs, ys, steps) {
    let before = Infinity, level = 0, lone = true;
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || xs[i] === null) { before = Infinity; continue; }
      const [left, top] = this.at(xs[i], ys[i]);
      if (xs[i] < before && !(steps && before !== Infinity)) {
        pen.moveTo(left, top);
        lone = i + 1 >= xs.length || xs[i + 1] <= xs[i];
        if (lone) pen.arc(left, top, 1, 0, 7);
      } else {
        if (steps) pen.lineTo(left, level);
        pen.lineTo(left, top);
      }
      before = xs[i];
      level = top;
    }
  }

  dots(pen, xs, ys, radius) {
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || xs[i] === null) continue;
      const [left, top] = this.at(xs[i], ys[i]);
      pen.moveTo(left + radius, top);
      pen.arc(left, top, radius, 0, 7);
    }
  }

  nearest(event) {
    if (!this.drawn) return null;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let found = null, least = NEAR ** 2;
    for (const { paths } of this.drawn.layers) {
      for (const path of paths) {
        for (let i = 0; i < path.xs.length; i++) {
          if (path.ys[i] === null || path.xs[i] === null) continue;
          const [left, top] = this.at(path.xs[i], path.ys[i]);
          const far = (left - x) ** 2 + (top - y) ** 2;
          if (far <= least) [found, least] = [{ path, i, left, top }, far];
        }
      }
    }
    return found;
  }

  point(event) {
    const found = this.tell ? this.nearest(event) : null;
    if (!found) return this.leave();
    this.tip.textContent = this.tell(found.path, found.i);
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(found.left + 10, Math.max(0, this.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${Math.max(0, found.top - this.tip.offsetHeight - 8)}px`;
  }

  leave() {
    this.tip.hidden = true;
  }
}
