/**
 * Numbers as an operator reads them.
 * @module
 */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SMALL = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A count: 12,345. @param {number | null | undefined} value */
export function count(value) {
  return typeof value === "number" ? WHOLE.format(value) : "–";
}

/** A rate: 1,234/s, 0.4/s; nothing for no activity at all. @param {number | null | undefined} value */
export function rate(value) {
  if (typeof value !== "number") return "";
  return `${Math.abs(value) < 10 ? SMALL.format(value) : WHOLE.format(value)}/s`;
}

/** The rate of a counter of an object's `message_stats`. */
export function rateOf(row, counter) {
  return row.message_stats ? rate(row.message_stats[`${counter}_details`]?.rate) : "";
}

/** Bytes: 12 KiB, 1.5 GiB. @param {number | null | undefined} value */
export function bytes(value) {
  if (typeof value !== "number") return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at && Math.abs(value) < 10 ? SMALL.format(value) : WHOLE.format(value)} ${units[at]}`;
}

/** A span of seconds: 40 s, 3 min, 2 h 5 min, 4 d 3 h. @param {number} seconds */
export function span(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A moment in ms since 1970, in the time of this browser. @param {number | null | undefined} time */
export function moment(time) {
  return typeof time === "number" && time > 0 ? new Date(time).toLocaleString() : "–";
}

/** Any value of JSON in one line. */
export function json(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** "1 queue", "2 queues". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** What the backlog of a queue does at its present rate: "empty in 3 min", "growing 40/s, full in 2 h", "steady". */
export function trend(row) {
  const change = row.messages_details?.rate;
  if (!row.messages || change === undefined) return "";
  if (Math.abs(change) < 0.05) return "steady";
  if (change < 0) return `empty in ${span(row.messages / -change)}`;
  // The lower one of both limits is in effect. They limit ready messages.
  const limit = Math.min(row.arguments?.["x-max-length"] ?? Infinity, row.effective_policy_definition?.["max-length"] ?? Infinity);
  const left = limit - row.messages_ready;
  return `growing ${rate(change)}${left > 0 && limit < Infinity ? `, full in ${span(left / change)}` : ""}`;
}

/** How old the first message of a queue is by the timestamp that its publisher gave it. */
export function headAge(row) {
  return row.head_message_timestamp ? span(Date.now() / 1000 - row.head_message_timestamp) : "";
}

/**
 * A name with marks for what one would not see: spaces at its ends and in a row, control characters, and characters that
 * change the direction of the text. Otherwise two names could look alike.
 */
export function visible(name) {
  return name.replace(/^ +| +$| {2,}/g, (spaces) => "␣".repeat(spaces.length))
    .replace(/[\u0000-\u001f\u007f]/g, (each) => String.fromCharCode(each === "\u007f" ? 0x2421 : 0x2400 + each.charCodeAt(0)))
    .replace(/[\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g, (each) => `[U+${each.charCodeAt(0).toString(16).toUpperCase()}]`);
}
