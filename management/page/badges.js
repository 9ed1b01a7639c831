/**
 * States and features as small marks, each with its word or an explanation.
 * @module
 */

import { el } from "./dom.js";

/** The kind of mark by state; a state that is missing here has a neutral one. */
const KINDS = {
  running: "good", idle: "quiet", live: "good", up: "good", maintenance: "warn", connecting: "warn", waiting: "warn", flow: "warn", blocking: "warn", syncing: "warn", starting: "warn",
  blocked: "bad", down: "bad", crashed: "bad", stopped: "bad", unreachable: "bad", refused: "bad", warning: "warn", error: "bad", critical: "bad",
};

/** A state: a coloured dot and the word. @param {string | undefined} name */
export function state(name) {
  return el("span", { class: `state ${KINDS[name] ?? "quiet"}` }, name ?? "–");
}

/** The state of a queue or channel, which is idle if it has done nothing for a while. */
export function stateOf(row) {
  return row.state === "running" && row.idle_since ? "idle" : row.state;
}

const ARGUMENTS = {
  "x-message-ttl": "TTL", "message-ttl": "TTL", "x-expires": "Exp", expires: "Exp",
  "x-max-length": "Lim", "max-length": "Lim", "x-max-length-bytes": "Lim B", "max-length-bytes": "Lim B",
  "x-overflow": "Ovfl", overflow: "Ovfl", "x-dead-letter-exchange": "DLX", "dead-letter-exchange": "DLX",
  "x-dead-letter-routing-key": "DLK", "dead-letter-routing-key": "DLK", "x-max-priority": "Pri",
  "x-queue-master-locator": "ML", "x-delivery-limit": "DlL", "delivery-limit": "DlL",
  "x-single-active-consumer": "SAC", "alternate-exchange": "AE", "x-queue-mode": "lazy", "queue-mode": "lazy",
};

/** The features of a queue or exchange as [short name, explanation]. */
export function features(row) {
  const found = [];
  if (row.durable) found.push(["D", "durable: true"]);
  if (row.auto_delete) found.push(["AD", "auto-delete: true"]);
  if (row.internal) found.push(["I", "internal: true"]);
  if (row.exclusive) found.push(["Excl", `exclusive: owned by ${row.owner_pid_details?.name ?? "a connection"}`]);
  // A policy and an argument may set the same: they share a badge, whose explanation has both.
  const texts = new Map();
  for (const [name, value] of [...Object.entries(row.arguments ?? {}), ...Object.entries(row.effective_policy_definition ?? {})]) {
    if (name === "x-queue-type") continue;
    const short = ARGUMENTS[name] ?? "Args";
    texts.set(short, [...(texts.get(short) ?? []), `${name}: ${JSON.stringify(value)}`]);
  }
  return [...found, ...[...texts].map(([short, lines]) => [short, lines.join("\n")])];
}

export function badges(list) {
  return el("span", { class: "badges" }, list.map(([text, title]) => el("abbr", { class: "badge", title }, text)));
}
