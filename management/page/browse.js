/**
 * Browsing the messages of a queue by number. All of them stay where they are, also those that a client holds.
 * @module
 */

import { enc, get, withQuery } from "./api.js";
import { BODY_MAX, messageShown } from "./details.js";
import { el, put, setText } from "./dom.js";
import { count } from "./format.js";

const COUNTS = [10, 20, 50, 100];

/**
 * @param {string} vhost
 * @param {string} name
 * @param {() => number} next the number that the next message gets
 */
export function browser(vhost, name, next) {
  const path = `messages/${enc(vhost)}/by-number/${enc(name)}`;
  const first = el("input", { type: "number", min: "0", placeholder: "the oldest", "aria-label": "From number", name: "first" });
  const size = el("select", { "aria-label": "Messages at a time", value: "20" }, COUNTS.map((each) => el("option", { value: each }, `${each} messages`)));
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const summary = el("p", { class: "summary", role: "status" });
  const shown = el("div");
  /** The answer that is shown, and the number that was asked for. */
  let known = { first: 0, next: 0, more_from: null, messages: [] };
  let at = 0;

  async function show(from) {
    problem.hidden = true;
    try {
      known = await get(withQuery(path, { first: from, count: size.value, truncate: BODY_MAX }));
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
      return;
    }
    at = from === "" ? known.first : from;
    first.value = String(at);
    later.disabled = known.more_from === null;
    earlier.disabled = at <= known.first;
    const numbers = known.messages.map((each) => each.number);
    const range = numbers.length ? `Messages ${count(numbers[0])} to ${count(numbers.at(-1))} are shown.` : "No message has a number from there on.";
    setText(summary, known.next ? `${range} The lowest number is ${count(known.first)}; the next message gets ${count(known.next)}.` : "The queue never had a message.");
    put(shown, known.messages.map((each) => messageShown(`Message ${count(each.number)}`, each, [["State", each.state === "unacked" ? "unacked: a client holds it" : "ready"]])));
  }

  const step = () => Number(size.value);
  const button = (words, from) => el("button", { type: "button", onclick: () => show(from()) }, words);
  const earlier = button("Earlier", () => Math.max(known.first, at - step()));
  const later = button("Later", () => known.more_from);
  earlier.disabled = later.disabled = true;
  const form = el("form", { "aria-label": "Browse messages", onsubmit: (event) => {
    event.preventDefault();
    show(first.value === "" ? "" : Number(first.value));
  } }, el("div", { class: "tools" }, first, size, el("button", { type: "submit", class: "primary" }, "Show")),
  el("div", { class: "buttons" }, button("Oldest", () => ""), earlier, later, button("Newest", () => Math.max(0, Math.max(known.next, next()) - step()))));
  return [el("p", {}, "Browsing takes no message out of the queue, and marks none as redelivered."), form, problem, summary, shown];
}
