/**
 * The form that moves messages of a queue to another one, a step at a time, until they are moved or the user stops it.
 * @module
 */

import { enc, request } from "./api.js";
import { form } from "./dialog.js";
import { el } from "./dom.js";
import { count, plural } from "./format.js";

/** Messages of one request. The user sees how far it is after each of them, and can stop then. */
const STEP = 1_000;

/**
 * @param {string} vhost
 * @param {string} name of the queue
 * @param {() => number} ready how many ready messages it has
 * @param {() => void} reload
 */
export function moving(vhost, name, ready, reload) {
  const progress = el("p", { role: "status", hidden: true });
  let isStopped = false;
  const stop = el("button", { type: "button", hidden: true, onclick: () => { isStopped = true; } }, "Stop moving");
  const move = async ({ destination, count: wanted }) => {
    const all = wanted ? Number(wanted) : ready();
    let moved = 0;
    const show = (words) => { progress.textContent = `${words} ${count(moved)} of ${plural(all, "message")} to queue '${destination}'.`; };
    isStopped = stop.hidden = progress.hidden = false;
    show("Moving:");
    try {
      while (moved < all && !isStopped) {
        const found = await request("POST", `queues/${enc(vhost)}/${enc(name)}/move`, { destination, count: Math.min(STEP, all - moved) });
        moved += found.moved;
        show("Moving:");
        if (!found.moved) break;
      }
    } finally {
      stop.hidden = true;
      show("Moved");
      reload();
    }
  };
  return [
    el("p", {}, "Each message goes to the end of the other queue, and leaves this one only when the other queue has confirmed it. You can stop at any time, and go on later."),
    form("Move messages", [
      { name: "destination", label: "Destination queue", required: true, hint: "in the same virtual host" },
      { name: "count", label: "Messages", type: "number", hint: "all that are ready now, if this is empty" },
    ], "Move messages", move, { keep: true }),
    progress, stop];
}
