/**
 * A chart of measures over time. Each series can be switched off, its legend shows the present value, and pointing at
 * the chart shows the values of that moment.
 * @module
 */

import { el, put, setText, svg } from "./dom.js";
import { remember, remembered } from "./session.js";

/** @typedef {[number, number]} Point ms and value */
/** @typedef {{id: string, label: string, off?: boolean}} Series */

/** The ranges: seconds, seconds between samples, words. */
export const RANGES = [[60, 5, "1 min"], [600, 5, "10 min"], [3600, 60, "1 h"], [28800, 600, "8 h"], [86400, 1800, "1 day"]];

const HEIGHT = 170;
const LEFT = 66;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 8;

let range = remembered("range", 1);
if (!(range in RANGES)) range = 1;

/** Parameters of a request for the samples of the chosen range: `samples("msg_rates", "lengths")`. */
export function samples(...kinds) {
  const [age, step] = RANGES[range];
  return Object.fromEntries(kinds.flatMap((kind) => [[`${kind}_age`, age], [`${kind}_incr`, step]]));
}

/** A choice of the range of all charts. @param {() => void} changed */
export function rangeChoice(changed) {
  return el("select", { "aria-label": "Range of the charts", value: String(range), onchange: (event) => {
    range = Number(event.target.value);
    remember("range", range);
    changed();
  } }, RANGES.map(([, , words], at) => el("option", { value: at }, `last ${words}`)));
}

/** The points of a length or size from its `_details`, and its value now. @returns {Point[]} */
export function lengthPoints(details, value) {
  const points = (details?.samples ?? []).map((each) => [each.timestamp, each.sample]).reverse();
  return [...points.filter(([time]) => time < Date.now() - 500), [Date.now(), value ?? 0]];
}

/** The points of the rate of a counter from its `_details`, and the rate now. @returns {Point[]} */
export function ratePoints(details) {
  const given = [...(details?.samples ?? [])].reverse();
  const points = [];
  for (let at = 1; at < given.length; at += 1) {
    const seconds = (given[at].timestamp - given[at - 1].timestamp) / 1000;
    if (seconds > 0) points.push([given[at].timestamp, Math.max(0, (given[at].sample - given[at - 1].sample) / seconds)]);
  }
  return [...points.filter(([time]) => time < Date.now() - 500), [Date.now(), details?.rate ?? 0]];
}

/** The points of a mean from the `_details` of a sum and of the number of its values; 0 where nothing was counted. @returns {Point[]} */
export function meanPoints(sum, number) {
  const numbers = ratePoints(number);
  return ratePoints(sum).map(([time, value], at) => [time, numbers[at]?.[1] ? value / numbers[at][1] : 0]);
}

export class Chart {
  /**
   * @param {string} title
   * @param {Series[]} series
   * @param {(value: number) => string} text a value in words
   */
  constructor(title, series, text) {
    this.series = series;
    this.text = text;
    this.off = new Set(remembered(`off.${title}`, series.filter((each) => each.off).map((each) => each.id)));
    this.title = title;
    /** @type {Record<string, Point[]>} */
    this.points = {};
    this.values = new Map();
    this.plot = svg("svg", { class: "plot", height: HEIGHT, role: "img", "aria-label": title });
    this.tip = el("div", { class: "tip", hidden: true });
    const area = el("div", { class: "area" }, this.plot, this.tip);
    const legend = el("div", { class: "legend" }, series.map((each, at) => this.entry(each, at)));
    this.element = el("figure", { class: "chart" }, el("figcaption", {}, title), area, legend);
    area.addEventListener("pointermove", (event) => this.point(event));
    area.addEventListener("pointerleave", () => { this.tip.hidden = true; this.cursor?.setAttribute("visibility", "hidden"); });
    new ResizeObserver(() => this.draw()).observe(area);
    this.area = area;
  }

  entry(series, at) {
    const value = el("span", { class: "value" }, "–");
    this.values.set(series.id, value);
    const button = el("button", { class: "entry", "aria-pressed": String(!this.off.has(series.id)), title: `Show or hide ${series.label}`, onclick: () => {
      if (!this.off.delete(series.id)) this.off.add(series.id);
      remember(`off.${this.title}`, [...this.off]);
      button.setAttribute("aria-pressed", String(!this.off.has(series.id)));
      this.draw();
    } }, el("span", { class: `swatch series-${at}` }), series.label, value);
    return button;
  }

  /** @param {Record<string, Point[]>} points */
  update(points) {
    this.points = points;
    for (const { id } of this.series) {
      const last = points[id]?.at(-1);
      setText(this.values.get(id), last ? this.text(last[1]) : "–");
    }
    this.draw();
  }

  get shown() {
    return this.series.map((each, at) => ({ ...each, at })).filter(({ id }) => !this.off.has(id) && this.points[id]?.length);
  }

  draw() {
    const width = this.area.clientWidth;
    if (!width) return;
    const now = Date.now();
    const start = now - RANGES[range][0] * 1000;
    const high = ceiling(Math.max(0, ...this.shown.flatMap(({ id }) => this.points[id].filter(([time]) => time >= start).map(([, value]) => value))));
    this.x = (time) => LEFT + ((time - start) / (now - start)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / high) * (HEIGHT - TOP - BOTTOM);
    const lines = [0, 0.5, 1].map((part) => svg("g", {},
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(high * part), y2: y(high * part) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(high * part) + 4, "text-anchor": "end" }, this.text(high * part))));
    const times = [0, 0.5, 1].map((part) => svg("text", {
      class: "tick", x: LEFT + part * (width - LEFT - RIGHT), y: HEIGHT - 5, "text-anchor": ["start", "middle", "end"][part * 2],
    }, clock(start + part * (now - start))));
    const paths = this.shown.map(({ id, at }) => {
      const points = this.points[id].filter(([time]) => time >= start);
      const text = points.map(([time, value], number) => `${number ? "L" : "M"}${this.x(time).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      return svg("path", { class: `line series-${at}`, d: text });
    });
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: 0, x2: 0, visibility: "hidden" });
    this.plot.setAttribute("width", String(width));
    put(this.plot, lines, times, paths, this.cursor);
  }

  point(event) {
    const at = event.clientX - this.area.getBoundingClientRect().left;
    const near = this.shown.map(({ id, label }) => ({ label, point: nearest(this.points[id], (time) => Math.abs(this.x(time) - at)) }));
    if (!near.length) return;
    const time = near[0].point[0];
    put(this.tip, el("strong", {}, clock(time)), near.map(({ label, point }) => el("div", {}, `${label} ${this.text(point[1])}`)));
    this.tip.hidden = false;
    const x = this.x(time);
    this.tip.style.left = `${Math.min(x + 12, this.area.clientWidth - this.tip.offsetWidth - 4)}px`;
    for (const name of ["x1", "x2"]) this.cursor?.setAttribute(name, String(x));
    this.cursor?.setAttribute("visibility", "visible");
  }
}

function nearest(points, distance) {
  return points.reduce((best, each) => (distance(each[0]) < distance(best[0]) ? each : best));
}

function clock(time) {
  const options = RANGES[range][0] < 3600 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
  return new Date(time).toLocaleTimeString([], { ...options, hour12: false });
}

/** The end of an axis: `value` rounded up to 1, 2, 4, 5 or 8 times a power of ten, which are easy to halve. */
function ceiling(value) {
  if (value <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * ([1, 2, 4, 5, 8, 10].find((each) => each * unit >= value) ?? 10);
}
