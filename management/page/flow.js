/**
 * What holds connections back: the bottleneck in a sentence, and the chain from client to disk.
 * @module
 */

import { enc, get } from "./api.js";
import { state } from "./badges.js";
import { el, put } from "./dom.js";
import { plural } from "./format.js";

/** @returns {{element: HTMLElement, sources: import("./live.js").Source[]}} */
export function flow() {
  const element = el("section", { class: "flow", "aria-live": "polite" });
  let shown = "";
  const take = async (rows) => {
    if (!Array.isArray(rows)) return;
    const worst = rows[0];
    const stages = worst ? await get(`flow/${enc(worst.connection)}`).catch(() => []) : [];
    const mark = JSON.stringify([rows.length, worst, stages]);
    if (mark === shown) return;
    shown = mark;
    put(element, el("h2", {}, "Flow"), worst ? [sentence(rows), drawn(stages)] : el("p", { class: "calm" }, "Nothing holds a connection back."));
  };
  return { element, sources: [{ path: () => "flow", take }] };
}

function sentence(rows) {
  const [{ bottleneck, subject, evidence, advice }] = rows;
  const same = rows.filter((row) => row.bottleneck === bottleneck && row.subject === subject).length;
  return el("div", { class: "cause" },
    el("p", {}, el("strong", {}, `The bottleneck is the ${bottleneck}: ${subject}.`), ` It holds back ${plural(same, "connection")}: ${evidence}.`),
    el("p", {}, advice), rows.length > same && el("p", {}, `Other causes hold back ${plural(rows.length - same, "connection")}.`));
}

const STAGES = { connection: "Connection", channel: "Channel", queue: "Queue", disk: "Store" };

/** The stages in order, each with how long it was blocked. */
function drawn(stages) {
  const groups = Object.keys(STAGES).map((stage) => stages.filter((row) => row.stage === stage));
  return el("ol", { class: "chain" }, Object.entries(STAGES).map(([, title], at) => el("li", { class: groups[at].some((row) => row.bottleneck) ? "stage bottleneck" : "stage" },
    el("span", { class: "label" }, title),
    groups[at].length ? groups[at].slice(0, 3).map((row) => el("div", {}, el("span", { class: "name" }, row.name), state(row.state), row.blocked_share > 0 && el("small", {}, `blocked ${Math.round(row.blocked_share * 100)} %`))) : el("small", {}, "not blocked"),
    groups[at].length > 3 && el("small", {}, `and ${groups[at].length - 3} more`))));
}
