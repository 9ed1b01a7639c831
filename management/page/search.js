/**
 * The search box: finds objects by a part of their names.
 * @module
 */

import { enc, encExchange, get, withQuery } from "./api.js";
import { el, put } from "./dom.js";
import { visible } from "./format.js";
import { may } from "./session.js";

const MOST = 6;

/** Each kind of object: its name, the path of the API that lists it, and the address of an object's view. */
const KINDS = [
  ["queue", "queues", (row) => `#/queues/${enc(row.vhost)}/${enc(row.name)}`],
  ["exchange", "exchanges", (row) => `#/exchanges/${enc(row.vhost)}/${encExchange(row.name)}`],
  ["connection", "connections", (row) => `#/connections/${enc(row.name)}`],
];

export function search() {
  const results = el("div", { class: "results", hidden: true });
  let asked = "";
  const close = () => { results.hidden = true; };
  const input = el("input", {
    id: "search", type: "search", placeholder: "Search  /", "aria-label": "Search queues, exchanges, connections and users", autocomplete: "off",
    oninput: () => find(input.value),
    onkeydown: (event) => {
      if (event.key === "Escape") { input.value = ""; close(); input.blur(); }
      if (event.key === "ArrowDown") { event.preventDefault(); results.querySelector("a")?.focus(); }
      if (event.key === "Enter") { const first = results.querySelector("a"); if (first) { first.click(); close(); } }
    },
  });
  results.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (event.key === "Escape") { close(); input.focus(); }
    if (step) { event.preventDefault(); (document.activeElement?.[step] ?? input).focus(); }
  });
  results.addEventListener("click", close);
  const box = el("div", { class: "search", onfocusout: (event) => { if (!box.contains(event.relatedTarget)) close(); } }, input, results);

  async function find(text) {
    asked = text;
    if (!text.trim()) return close();
    const found = await Promise.all(KINDS.map(async ([kind, path, address]) => {
      try {
        const answer = await get(withQuery(path, { page: 1, page_size: MOST, name: text, columns: "name,vhost", disable_stats: kind === "queue" }));
        return answer.items.map((row) => [kind, row.name || "(AMQP default)", row.vhost ?? "", address(row)]);
      } catch {
        return [];
      }
    }));
    if (may("administrator")) {
      const users = await get("users?columns=name").catch(() => []);
      found.push(users.filter((each) => each.name.toLowerCase().includes(text.toLowerCase())).slice(0, MOST).map((each) => ["user", each.name, "", `#/users/${enc(each.name)}`]));
    }
    if (asked !== text) return;
    const rows = found.flat();
    put(results, rows.length ? rows.map(([kind, name, vhost, address]) => el("a", { href: address }, el("span", { class: "kind" }, kind), el("span", { class: "name" }, visible(name)), el("span", { class: "where" }, visible(vhost))))
      : el("p", {}, "Nothing has this in its name."));
    results.hidden = false;
  }
  return box;
}
