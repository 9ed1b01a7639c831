/**
 * A single node: what it uses, what its memory is for, its links to the others, and its settings.
 * @module
 */

import { enc, get, withQuery } from "../api.js";
import { state } from "../badges.js";
import { Chart, lengthPoints, meanPoints, rangeChoice, ratePoints, samples } from "../chart.js";
import { Facts, heading, missing } from "../details.js";
import { attempt, section } from "../dialog.js";
import { el, setText } from "../dom.js";
import { bytes, count, json, moment, rate, span } from "../format.js";
import { may } from "../session.js";
import { Table, meter } from "../table.js";

const flowing = (value) => `${bytes(value)}/s`;
const ms = (value) => (typeof value === "number" ? `${value.toFixed(1)} ms` : "–");

/** The charts: title, series, how a value is written, and the points of one series. */
const LENGTH = (row, id) => lengthPoints(row[`${id}_details`], row[id]);
const RATE = (row, id) => ratePoints(row[`${id}_details`]);
const COMMIT_TIME = (row) => meanPoints(row.journal_commit_seconds_details, row.journal_commits_details).map(([time, seconds]) => [time, 1000 * seconds]);
const CHARTS = [
  ["Memory", [{ id: "mem_used", label: "Used" }], bytes, LENGTH],
  ["Free disk space", [{ id: "disk_free", label: "Free" }], bytes, LENGTH],
  ["Descriptors and processes", [{ id: "fd_used", label: "File descriptors" }, { id: "sockets_used", label: "Sockets" }, { id: "proc_used", label: "Processes" }], count, LENGTH],
  ["Disk traffic", [{ id: "io_read_bytes", label: "Read" }, { id: "io_write_bytes", label: "Written" }], flowing, RATE],
  ["File operations", [{ id: "io_read_count", label: "Reads" }, { id: "io_write_count", label: "Writes" }, { id: "queue_index_read_count", label: "Reads of queue indexes" }, { id: "queue_index_write_count", label: "Writes of queue indexes" }], rate, RATE],
  ["Message store", [{ id: "msg_store_read_count", label: "Messages read" }, { id: "msg_store_write_count", label: "Messages written" }], rate, RATE],
  ["Journal commits", [{ id: "journal_commits", label: "Commits" }], rate, RATE],
  ["Time of a journal commit", [{ id: "journal_commit_seconds", label: "Mean" }], ms, COMMIT_TIME],
  ["Runtime", [{ id: "context_switches", label: "Context switches" }, { id: "gc_num", label: "Garbage collections" }], rate, RATE],
];

/** The charts of a node with a data directory. */
const ON_DISK = new Set(["Free disk space", "File operations", "Journal commits", "Time of a journal commit"]);

/** What the alarm of each resource says. */
const ALARMS = { memory: "The memory in use is above its limit", disk: "The free disk space is below its limit" };

/** @param {import("../main.js").Context} context @returns {import("../main.js").View} */
export function node(context) {
  const [name] = context.names;
  const path = `nodes/${enc(name)}`;
  const charts = CHARTS.map(([title, series, text]) => new Chart(title, series, text));
  const alarms = el("div", { role: "status" });
  const facts = new Facts();
  const counters = new Facts();
  const links = linkTable();
  const turns = turnTable();
  const memory = memoryPart(path);
  const log = logPart(path, context.reload);
  const down = el("p", { class: "problem", role: "alert", hidden: true }, "The node does not answer, so there are no figures of it.");
  const figures = el("div", { hidden: true }, el("div", { class: "charts" }, charts.map((chart) => chart.element)),
    el("div", { class: "columns" }, el("section", {}, el("h2", {}, "Details"), facts.element), el("section", {}, el("h2", {}, "Counters"), counters.element)),
    memory.element, el("h2", {}, "Links to other nodes"), links.element, el("h2", {}, "Longest turns"), turns.element,
    may("administrator") && [section("Settings", settings(path)), log.element]);
  const body = el("div", {}, down, alarms, figures);
  const take = (row) => {
    if (row.error) return missing(body, row);
    const isKnown = row.mem_used !== undefined;
    down.hidden = isKnown;
    figures.hidden = !isKnown;
    setText(alarms, isKnown ? alarmText(row) : "");
    alarms.className = row.alarms?.length ? "cause" : "";
    if (!isKnown) return;
    CHARTS.forEach(([, series, , points], at) => charts[at].update(Object.fromEntries(series.map(({ id }) => [id, points(row, id)]))));
    // A broker that keeps everything in memory has neither a disk nor a journal.
    CHARTS.forEach(([title], at) => { charts[at].element.hidden = ON_DISK.has(title) && !row.db_dir; });
    facts.update(factsOf(row));
    counters.update(countersOf(row));
    links.update(row.cluster_links);
    turns.update(row.longest_turns);
    memory.begin();
  };
  return {
    title: name, element: el("div", {}, heading("Overview", "", name, undefined, rangeChoice(context.reload)), body),
    sources: [{ path: () => withQuery(path, samples("node_stats")), take }, log.source],
  };
}

function alarmText(row) {
  return row.alarms.length ? `${row.alarms.map((each) => ALARMS[each] ?? each).join(". ")}. Connections that publish are blocked until this ends.` : "";
}

function factsOf(row) {
  const kind = row.being_drained ? "maintenance" : "running";
  const versions = row.applications.map((each) => `${each.name} ${each.version}`).join(", ");
  const mark = (...values) => values.join(" ");
  return [
    ["State", state(kind), kind], ["Uptime", span(row.uptime / 1000)], ["Versions", versions], ["Process", row.os_pid],
    ["Memory", meter(row.mem_used, row.mem_limit, row.mem_alarm, `${bytes(row.mem_used)} of ${bytes(row.mem_limit)}`), mark(row.mem_used, row.mem_limit, row.mem_alarm)],
    ["Disk free", row.disk_free ? `${bytes(row.disk_free)}, low below ${bytes(row.disk_free_limit)}` : ""],
    ["File descriptors", meter(row.fd_used, row.fd_total, false, `${count(row.fd_used)} of ${count(row.fd_total)}`), mark(row.fd_used, row.fd_total)],
    ["Sockets", meter(row.sockets_used, row.sockets_total, false, `${count(row.sockets_used)} of ${count(row.sockets_total)}`), mark(row.sockets_used, row.sockets_total)],
    ["Processes", count(row.proc_used)], ["Data directory", row.db_dir || "none: everything is in memory"],
    ["Log files", row.log_files.join(", ") || "none: the log goes to the standard error"],
    ["Authentication", row.auth_mechanisms.map((each) => each.name).join(", ")], ["Net tick time", `${row.net_ticktime} s`],
  ];
}

function countersOf(row) {
  const both = (name) => `${count(row[name])} (${rate(row[`${name}_details`]?.rate)})`;
  const size = (name) => `${bytes(row[name])} (${flowing(row[`${name}_details`]?.rate)})`;
  return [
    ["Read from disks", size("io_read_bytes")], ["Written to disks", size("io_write_bytes")],
    ["Reads of files", both("io_read_count")], ["Mean time of a read", ms(row.io_read_avg_time)],
    ["Writes of files", both("io_write_count")], ["Mean time of a write", ms(row.io_write_avg_time)],
    ["Journal commits", both("journal_commits")], ["Messages in them", both("journal_commit_messages")],
    ["Messages read from the store", both("msg_store_read_count")], ["Messages written to the store", both("msg_store_write_count")],
    ["Connections opened", both("connection_created")], ["Connections closed", both("connection_closed")],
    ["Channels opened", both("channel_created")], ["Channels closed", both("channel_closed")],
    ["Queues declared", both("queue_declared")], ["Queues created", both("queue_created")], ["Queues deleted", both("queue_deleted")],
    ["Garbage collections", both("gc_num")], ["Context switches", both("context_switches")],
  ];
}

export function linkTable() {
  return new Table([
    { id: "name", title: "Node", mark: (row) => row.name, cell: (row) => el("a", { href: `#/nodes/${enc(row.name)}` }, row.name) },
    { id: "state", title: "State", mark: (row) => row.state, cell: (row) => state(row.state) },
    { id: "address", title: "Address", cell: (row) => (row.peer_port ? `${row.peer_addr}:${row.peer_port}` : "–") },
    { id: "round_trip", title: "Round trip", number: true, cell: (row) => ms(row.round_trip) },
    { id: "from", title: "From there", number: true, cell: (row) => flowing(row.stats.recv_bytes_details.rate) },
    { id: "to", title: "To there", number: true, cell: (row) => flowing(row.stats.send_bytes_details.rate) },
    { id: "unsent", title: "Unsent", number: true, cell: (row) => bytes(row.unsent) },
    { id: "error", title: "Last error", cell: (row) => row.last_error },
  ], (row) => row.name, "Links to other nodes");
}

function turnTable() {
  return new Table([
    { id: "seconds", title: "Processor time", number: true, cell: (row) => ms(row.seconds * 1000) },
    { id: "process", title: "Process", cell: (row) => row.process },
    { id: "message", title: "Message", cell: (row) => row.message },
    { id: "ended", title: "Ended", cell: (row) => moment(row.ended_at * 1000) },
  ], (row) => `${row.process} ${row.message} ${row.ended_at}`, "Longest turns");
}

/** What the memory is used for. Measuring walks all pages of memory, so the node measures only when this is opened, or on demand. */
function memoryPart(path) {
  const table = new Table([
    { id: "category", title: "Category", cell: (row) => row.category },
    { id: "size", title: "Size", number: true, cell: (row) => bytes(row.size) },
    { id: "share", title: "Share", mark: (row) => `${row.size} ${row.total}`, cell: (row) => meter(row.size, row.total, false, `${Math.round((100 * row.size) / row.total)} %`) },
  ], (row) => row.category, "Memory by category");
  const at = el("span", { class: "summary" });
  let isBegun = false;
  const measure = () => attempt(async () => {
    const { memory } = await get(`${path}/memory`);
    const found = Object.entries(memory).filter(([, size]) => typeof size === "number" && size > 0);
    const total = found.reduce((sum, [, size]) => sum + size, 0);
    const rows = found.map(([category, size]) => ({ category: category.replaceAll("_", " "), size, total }));
    table.update(rows.sort((a, b) => b.size - a.size));
    setText(at, `measured at ${new Date().toLocaleTimeString([], { hour12: false })}`);
  });
  const element = el("section", {}, el("h2", {}, "Memory by category"), el("div", { class: "tools" }, el("button", { onclick: measure }, "Measure again"), at), table.element);
  return { element, begin() { if (!isBegun) { isBegun = true; measure(); } } };
}

/** Level and filter, which stay when one looks at another node. */
const logged = { level: "info", text: "" };
const LOG_LINES = 200;
const LEVELS = ["debug", "info", "warning", "error"];

/** The newest lines of the log, the newest first. It is fetched only while it is unfolded. */
function logPart(path, reload) {
  let timer = 0;
  const table = new Table([
    { id: "time", title: "Time", cell: (row) => moment(row.time * 1000) },
    { id: "level", title: "Level", mark: (row) => row.level, cell: (row) => state(row.level) },
    { id: "category", title: "Category", cell: (row) => row.category },
    { id: "text", title: "Text", wrap: true, cell: (row) => row.text },
  ], (row) => String(row.number), "Log");
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const level = el("select", { "aria-label": "Lowest level", value: logged.level, onchange: () => { logged.level = level.value; reload(); } },
    LEVELS.map((each) => el("option", { value: each }, each === "debug" ? "all levels" : `from ${each} on`)));
  const filter = el("input", { type: "search", class: "filter", placeholder: "Filter by text", "aria-label": "Filter the log by text", value: logged.text, oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(() => { logged.text = filter.value; reload(); }, 200);
  } });
  const element = section("Log", [el("div", { class: "tools" }, level, filter, el("span", { class: "summary" }, `the newest ${LOG_LINES} lines`)), problem, table.element]);
  element.addEventListener("toggle", reload);
  const take = (value) => {
    problem.hidden = Array.isArray(value);
    if (problem.hidden) table.update(value.reverse());
    else setText(problem, String(value.reason ?? value.error));
  };
  const isShown = () => element.isConnected && element.open;
  return { element, source: { path: () => (isShown() ? withQuery(`${path}/log`, { level: logged.level, text: logged.text, lines: LOG_LINES }) : null), take } };
}

/** The settings of the node and where each comes from, fetched when they are unfolded. */
function settings(path) {
  const table = new Table([
    { id: "key", title: "Setting", cell: (row) => row.key }, { id: "value", title: "Value", cell: (row) => (row.value === null ? "" : json(row.value)) },
    { id: "origin", title: "Origin", cell: (row) => row.origin },
  ], (row) => row.key, "Settings");
  let rows = [];
  const box = el("input", { type: "checkbox", onchange: () => show() });
  const show = () => table.update(rows.filter((row) => !box.checked || row.origin !== "default"));
  const fetchAll = () => attempt(async () => { rows = await get(`${path}/environment`); show(); });
  const element = el("div", {}, el("div", { class: "tools" }, el("button", { onclick: fetchAll }, "Show settings"), el("label", { class: "check" }, box, "only those that are set")), table.element);
  return element;
}
