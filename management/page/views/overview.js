/**
 * The overview: totals, charts, what holds connections back, and the nodes.
 * @module
 */

import { enc, request, withQuery } from "../api.js";
import { state } from "../badges.js";
import { Chart, lengthPoints, rangeChoice, ratePoints, samples } from "../chart.js";
import { attempt, confirmed } from "../dialog.js";
import { el, put, setText } from "../dom.js";
import { flow } from "../flow.js";
import { bytes, count, moment, rate, span } from "../format.js";
import { may } from "../session.js";
import { Table, meter } from "../table.js";

const LENGTHS = [
  { id: "messages", label: "Total" }, { id: "messages_ready", label: "Ready" }, { id: "messages_unacknowledged", label: "Unacked" },
];

export const RATES = [
  { id: "publish", label: "Publish" }, { id: "confirm", label: "Publisher confirm", off: true },
  { id: "deliver", label: "Deliver (manual ack)" }, { id: "deliver_no_ack", label: "Deliver (auto ack)" },
  { id: "ack", label: "Consumer ack" }, { id: "redeliver", label: "Redelivered", off: true },
  { id: "get", label: "Get (manual ack)", off: true }, { id: "get_no_ack", label: "Get (auto ack)", off: true },
  { id: "get_empty", label: "Get (empty)", off: true }, { id: "return_unroutable", label: "Unroutable (return)", off: true },
  { id: "drop_unroutable", label: "Unroutable (drop)", off: true }, { id: "disk_reads", label: "Disk read", off: true },
  { id: "disk_writes", label: "Disk write", off: true },
];

const OBJECTS = ["connections", "channels", "exchanges", "queues", "consumers"];

/** @param {import("../main.js").Context} context @returns {import("../main.js").View} */
export function overview(context) {
  const tiles = el("div", { class: "tiles" });
  const lengths = new Chart("Queued messages", LENGTHS, count);
  const rates = new Chart("Message rates", RATES, rate);
  const chain = flow();
  const nodes = nodeTable();
  const listeners = new Table([
    { id: "protocol", title: "Protocol", cell: (row) => row.protocol },
    { id: "bound", title: "Bound to", cell: (row) => row.ip_address },
    { id: "port", title: "Port", number: true, cell: (row) => String(row.port) },
    { id: "node", title: "Node", cell: (row) => row.node },
  ], (row) => `${row.node} ${row.protocol} ${row.port}`, "Ports");
  const contexts = new Table([
    { id: "description", title: "Context", cell: (row) => row.description }, { id: "bound", title: "Bound to", cell: (row) => row.ip }, { id: "port", title: "Port", number: true, cell: (row) => String(row.port) },
    { id: "tls", title: "TLS", cell: (row) => (row.ssl ? "yes" : "no") }, { id: "path", title: "Path", cell: (row) => row.path }, { id: "node", title: "Node", cell: (row) => row.node },
  ], (row) => `${row.node} ${row.port}`, "Web contexts");
  const events = new Table([
    { id: "time", title: "Time", cell: (row) => moment(row.time) }, { id: "kind", title: "Subject", cell: (row) => row.kind }, { id: "text", title: "What happened", wrap: true, cell: (row) => row.text },
  ], (row) => String(row.number), "Recent events");
  const churn = el("dl", { class: "pairs" });
  const take = (value) => {
    if (value.error) return;
    show(tiles, value);
    lengths.update(Object.fromEntries(LENGTHS.map(({ id }) => [id, lengthPoints(value.queue_totals[`${id}_details`], value.queue_totals[id])])));
    rates.update(Object.fromEntries(RATES.map(({ id }) => [id, ratePoints(value.message_stats[`${id}_details`])])));
    listeners.update(value.listeners);
    contexts.update(value.contexts);
    showChurn(churn, value.churn_rates);
  };
  return {
    title: "Overview",
    element: el("div", { class: "overview" },
      el("div", { class: "heading" }, el("h1", {}, "Overview"), rangeChoice(context.reload), el("span", { class: "space" }),
        may("administrator") && el("button", { onclick: () => reset(context.reload) }, "Reset statistics")),
      tiles, el("div", { class: "charts" }, lengths.element, rates.element),
      may("monitoring") && [chain.element, el("h2", {}, "Nodes"), nodes.element, el("div", { class: "columns" },
        el("section", {}, el("h2", {}, "Ports"), listeners.element, el("h2", {}, "Web contexts"), contexts.element),
        el("section", {}, el("h2", {}, "Churn"), churn, el("h2", {}, "Recent events"), events.element))]),
    sources: [
      { path: () => withQuery("overview", samples("msg_rates", "lengths")), take },
      { path: () => (may("monitoring") ? "nodes" : null), take: (value) => { if (Array.isArray(value)) nodes.update(value); } },
      { path: () => (may("monitoring") ? "recent-events" : null), take: (value) => { if (Array.isArray(value)) events.update(value); } },
      ...chain.sources,
    ],
  };
}

async function reset(reload) {
  if (!(await confirmed("Forget the rates and the charts of all objects? Counters go on.", "Reset statistics"))) return;
  if (await attempt(() => request("DELETE", "reset"), "The statistics begin anew.")) reload();
}

function show(tiles, value) {
  const totals = value.queue_totals;
  const stats = value.message_stats;
  const of = (counter) => stats[`${counter}_details`]?.rate ?? 0;
  const figures = [
    ["Ready", count(totals.messages_ready), "#/queues"], ["Unacked", count(totals.messages_unacknowledged), "#/queues"],
    ["Published", rate(of("publish"))], ["Delivered", rate(of("deliver_get"))], ["Acknowledged", rate(of("ack"))],
    ...OBJECTS.map((name) => [name[0].toUpperCase() + name.slice(1), count(value.object_totals[name]), name === "consumers" ? undefined : `#/${name}`]),
  ];
  if (tiles.childElementCount !== figures.length) {
    put(tiles, figures.map(([label, , address]) => el(address ? "a" : "div", { class: "tile", href: address }, el("span", { class: "figure" }), el("span", { class: "label" }, label))));
  }
  figures.forEach(([, text], at) => setText(tiles.children[at].firstChild, text));
}

function nodeTable() {
  const used = (row, name, total) => (row.running && row[name] !== undefined ? `${count(row[name])} of ${count(row[total])}` : "–");
  return new Table([
    { id: "name", title: "Name", mark: (row) => row.name, cell: (row) => el("a", { href: `#/nodes/${enc(row.name)}` }, row.name) },
    { id: "state", title: "State", mark: (row) => `${row.running} ${row.being_drained}`, cell: (row) => state(row.being_drained ? "maintenance" : row.running ? "running" : "down") },
    { id: "memory", title: "Memory", mark: (row) => `${row.mem_used} ${row.mem_limit} ${row.mem_alarm}`, cell: (row) => meter(row.mem_used, row.mem_limit, row.mem_alarm, `${bytes(row.mem_used)} of ${bytes(row.mem_limit)}`) },
    { id: "disk", title: "Disk free", mark: (row) => `${row.disk_free} ${row.disk_free_alarm}`, cell: (row) => el("span", { class: row.disk_free_alarm && "alarm" }, row.disk_free ? `${bytes(row.disk_free)}, low below ${bytes(row.disk_free_limit)}` : "–") },
    { id: "fd", title: "File descriptors", number: true, cell: (row) => used(row, "fd_used", "fd_total") },
    { id: "sockets", title: "Sockets", number: true, cell: (row) => used(row, "sockets_used", "sockets_total") },
    { id: "processes", title: "Processes", number: true, cell: (row) => count(row.proc_used) },
    { id: "version", title: "Version", cell: (row) => row.applications?.find((each) => each.name === "warren")?.version ?? "–" },
    { id: "uptime", title: "Uptime", number: true, cell: (row) => (row.uptime === undefined ? "–" : span(row.uptime / 1000)) },
  ], (row) => row.name, "Nodes");
}

function showChurn(list, churn) {
  const rows = [["Connections", "connection"], ["Channels", "channel"]].map(([title, name]) =>
    [title, `${count(churn[`${name}_created`])} opened (${rate(churn[`${name}_created_details`]?.rate)}), ${count(churn[`${name}_closed`])} closed (${rate(churn[`${name}_closed_details`]?.rate)})`]);
  rows.push(["Queues", `${count(churn.queue_declared)} declared, ${count(churn.queue_created)} created, ${count(churn.queue_deleted)} deleted`]);
  if (!list.childElementCount) put(list, rows.map(([title]) => [el("dt", {}, title), el("dd")]));
  rows.forEach(([, text], at) => setText(list.children[2 * at + 1], text));
}
