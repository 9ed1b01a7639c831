/**
 * Where the ready messages of a queue are: its sub-queues from the oldest message to the newest, as a bar.
 * @module
 */

import { el, put, svg } from "./dom.js";
import { count } from "./format.js";

/** The sub-queues, the head of the queue first. The index entries of q3 and q2 are in memory, those of delta are not. */
const LAYERS = [
  ["q4", "oldest, in memory"], ["q3", "next, bodies on the disk"], ["delta", "on the disk alone"], ["q2", "later, bodies on the disk"], ["q1", "newest, in memory"],
];

const WIDTH = 1000;

/** @returns {{element: HTMLElement, take: (status: any) => void}} */
export function layers() {
  const bar = el("div", {});
  const legend = el("div", { class: "legend" });
  const element = el("section", { hidden: true }, el("h2", {}, "Layers of the store"), el("div", { class: "chart layers" }, bar, legend));
  let shown = "";
  return {
    element,
    /** @param {any} status the `backing_queue_status` of the queue */
    take(status) {
      const lengths = LAYERS.map(([name]) => (name === "delta" ? status?.delta?.[2] : status?.[name]) ?? 0);
      const total = lengths.reduce((sum, each) => sum + each, 0);
      element.hidden = !total;
      const mark = lengths.join();
      if (mark === shown || !total) return;
      shown = mark;
      put(bar, drawn(lengths, total));
      put(legend, LAYERS.map(([name, hint], at) => el("span", { class: "entry", title: hint }, el("span", { class: `swatch series-${at}` }), `${name}: ${hint}`, el("span", { class: "value" }, count(lengths[at])))));
    },
  };
}

function drawn(lengths, total) {
  let x = 0;
  const words = lengths.map((length, at) => `${LAYERS[at][0]} ${count(length)}`).join(", ");
  return svg("svg", { viewBox: `0 0 ${WIDTH} 20`, preserveAspectRatio: "none", role: "img", "aria-label": `From the oldest message on: ${words}` }, lengths.map((length, at) => {
    const width = (WIDTH * length) / total;
    x += width;
    return length > 0 && svg("rect", { class: `series-${at}`, x: x - width, y: 0, width, height: 20 });
  }));
}
