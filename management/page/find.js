/**
 * Finding messages of an indexed queue by a key or an id, also those that have left the queue.
 * @module
 */

import { enc, get, withQuery } from "./api.js";
import { BODY_MAX, Facts, messageShown } from "./details.js";
import { form } from "./dialog.js";
import { el, put } from "./dom.js";
import { count, moment, plural } from "./format.js";

const MOST = 32;

/** @param {string} vhost @param {string} queue @param {() => boolean} isIndexed whether the queue is indexed now */
export function finder(vhost, queue, isIndexed) {
  const found = el("div", { role: "status" });
  const element = form("Find messages", [
    { name: "by", label: "Find by", type: "select", options: [["key", "a key, such as its message-id"], ["id", "its id in the index, or its message-id in any queue"]] },
    { name: "text", label: "Key or id", required: true },
  ], "Find", async ({ by, text }) => {
    const path = `messages/${enc(vhost)}`;
    const answer = await get(by === "id" ? `${path}/by-id/${enc(text)}` : withQuery(path, { queue, key: text, begin: 0, max: MOST }));
    const words = answer.messages.length ? `${plural(answer.messages.length, "message")}, the newest first${answer.truncated ? "; there are more" : ""}.` : isIndexed() || by === "id" ? "The index has no such message." : "The queue is not indexed. Give it a policy with the key message-index.";
    put(found, el("p", { class: "summary" }, words), answer.messages.map(shown));
  }, { keep: true });
  return [el("p", {}, "A queue is indexed if its policy has the key message-index. Messages that have left the queue are found too."), element, found];
}

function shown(row) {
  const facts = [["Id", row.id], ["State", stateOf(row)], ["Stored at", moment(row.stored_at)], ["Keys", (row.keys ?? []).join(", ")]];
  const title = `Message ${count(row.seq)} of ${row.queue}`;
  if (row.payload !== undefined) return messageShown(title, { ...row, payload: row.payload.slice(0, BODY_MAX), payload_bytes: row.size }, facts);
  const list = new Facts();
  list.update(facts);
  return el("article", { class: "got" }, el("h3", {}, title), list.element);
}

function stateOf(row) {
  const words = row.state === "unacked" ? "unacked: a client holds it" : row.state;
  return [words, row.detail, row.gone_at && moment(row.gone_at)].filter(Boolean).join(", ");
}
