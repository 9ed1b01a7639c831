/**
 * The ring of a mirrored queue, drawn as a ring: the master at the top, then its mirrors in order, and what each lacks.
 * @module
 */

import { enc, request } from "./api.js";
import { attempt } from "./dialog.js";
import { el, put, svg } from "./dom.js";
import { bytes, count, span } from "./format.js";
import { may } from "./session.js";
import { Table } from "./table.js";

/** Wide enough for the names of the members at the sides. */
const WIDTH = 320;
const HEIGHT = 250;
const RADIUS = 88;

/** @returns {{element: HTMLElement, take: (queue: any) => void, sources: import("./live.js").Source[]}} */
export function ring(vhost, name, reload) {
  let isMirrored = false;
  let drawn = "";
  const drawing = el("div");
  const title = el("p", {});
  const members = new Table([
    { id: "node", title: "Member", cell: (row) => row.node },
    { id: "role", title: "Role", cell: (row) => (row.role === "learner" && row.stage ? `learner, ${row.stage}` : row.role) },
    { id: "lag", title: "Behind the master", number: true, cell: (row) => count(row.lag) },
    { id: "unstored", title: "Not stored yet", number: true, cell: (row) => count(row.unstored) },
    { id: "messages", title: "Messages", number: true, cell: (row) => count(row.messages) },
  ], (row) => row.node, "Members of the ring");
  const sync = synchronising(vhost, name, reload);
  const element = el("section", { hidden: true }, el("h2", {}, "Ring"), title, sync.element, el("div", { class: "ring" }, drawing, members.element));
  const take = (value) => {
    element.hidden = !Array.isArray(value.members);
    if (element.hidden) return;
    const mark = JSON.stringify(value);
    if (mark === drawn) return;
    drawn = mark;
    const lacks = [value.missing.length && `Missing: ${value.missing.join(", ")}.`, value.evicted.length && `Evicted: ${value.evicted.map((each) => `${each.node} (${each.reason})`).join(", ")}.`];
    title.textContent = [`View ${value.epoch}, reign ${value.reign}.`, ...lacks].filter(Boolean).join(" ");
    sync.take(value.members);
    put(drawing, picture(value.members));
    members.update(value.members);
  };
  return {
    element,
    take(queue) {
      sync.isClassic = queue.type === "classic";
      const is = may("monitoring") && (Array.isArray(queue.slave_nodes) || (queue.members ?? []).length > 1);
      if (is === isMirrored) return;
      isMirrored = is;
      element.hidden = true;
      reload();
    },
    sources: [{ path: () => (isMirrored ? `rings/${enc(vhost)}/${enc(name)}` : null), take }],
  };
}

/** What the mirrors do that lack messages, with buttons that have them copy the queue, or stop. */
function synchronising(vhost, name, reload) {
  const words = el("span", {});
  const act = (action, done) => attempt(() => request("POST", `queues/${enc(vhost)}/${enc(name)}/actions`, { action }), done).then(reload);
  const begin = el("button", { onclick: () => act("sync", "The mirrors copy the queue.") }, "Synchronise");
  const cancel = el("button", { onclick: () => act("cancel_sync", "The mirrors have stopped copying.") }, "Cancel");
  const element = el("div", { class: "buttons sync", role: "status" }, words, begin, cancel);
  const part = {
    element,
    isClassic: true,
    take(members) {
      const learners = members.filter((row) => row.role === "learner");
      element.hidden = !learners.length;
      words.textContent = learners.map((row) => `${row.node} ${learning(row, members[0].messages)}.`).join(" ");
      // Mirrors of quorum queues copy them without being asked.
      const mayAct = part.isClassic && may("administrator");
      begin.hidden = !mayAct || !learners.some((row) => row.stage === "waiting");
      cancel.hidden = !mayAct || !learners.some((row) => row.stage !== null && row.stage !== "waiting");
    },
  };
  return part;
}

function learning(row, total) {
  if (row.stage === null) return "does not answer";
  if (row.stage === "waiting") return "is not synchronised: it has only messages that came later than it";
  const words = [`is being synchronised: it has ${count(row.messages)} of ${count(total)} messages`];
  if (row.left) words.push(`lacks ${count(row.left)}`);
  if (row.bytes_per_second) words.push(`gets ${bytes(row.bytes_per_second)}/s`);
  if (row.seconds_left) words.push(`about ${span(row.seconds_left)} are left`);
  if (row.alarms?.length) words.push(`waits until the ${row.alarms.join(" and ")} alarm of its node is cleared`);
  return words.join(", ");
}

function picture(members) {
  const [middle, centre] = [WIDTH / 2, HEIGHT / 2];
  const places = members.map((member, at) => {
    const angle = (2 * Math.PI * at) / members.length - Math.PI / 2;
    return { member, x: middle + RADIUS * Math.cos(angle), y: centre + RADIUS * Math.sin(angle) };
  });
  return svg("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `A ring of ${members.length} members; the master is ${members[0].node}` },
    svg("circle", { class: "round", cx: middle, cy: centre, r: RADIUS }),
    places.map(({ member, x, y }) => svg("g", {}, svg("circle", { class: `member ${kind(member)}`, cx: x, cy: y, r: 9 }),
      svg("text", { x, y: y - 15, "text-anchor": "middle" }, short(member.node)),
      svg("text", { class: "soft", x, y: y + 23, "text-anchor": "middle" }, member.lag ? `${count(member.lag)} behind` : member.role))));
}

function kind(member) {
  if (member.role === "master") return "master";
  if (member.received === null) return "silent";
  return member.role === "learner" ? "learner" : member.lag ? "behind" : "";
}

/** A node's name, cut after 17 characters if it has more than 18, so that it does not overlap its neighbours in the drawing. */
function short(node) {
  return node.length > 18 ? `${node.slice(0, 17)}…` : node;
}
