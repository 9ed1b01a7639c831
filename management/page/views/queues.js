/**
 * The list of queues.
 * @module
 */

import { enc, get, request } from "../api.js";
import { badges, features, state, stateOf } from "../badges.js";
import { form, hint, say, section } from "../dialog.js";
import { el } from "../dom.js";
import { bytes, count, headAge, rateOf, trend, visible } from "../format.js";
import { QUEUE_ARGUMENTS } from "../keys.js";
import { may } from "../session.js";
import { List } from "../table.js";
import { queue } from "./queue.js";

const address = (row) => `#/queues/${enc(row.vhost)}/${enc(row.name)}`;

/** The columns that all lists of queues have. */
const COLUMNS = [
  { id: "vhost", title: "Virtual host", wide: true, sort: "vhost", cell: (row) => row.vhost },
  { id: "name", title: "Name", sort: "name", mark: (row) => row.name, cell: (row) => el("a", { href: address(row) }, visible(row.name)) },
  { id: "node", title: "Node", sort: "node", mark: (row) => `${row.node} ${row.slave_nodes} ${row.synchronised_slave_nodes}`, cell: node, hidden: true },
  { id: "type", title: "Type", wide: true, sort: "type", cell: (row) => row.type },
  { id: "features", title: "Features", wide: true, mark: (row) => JSON.stringify(features(row)), cell: (row) => badges(features(row)) },
  { id: "policy", title: "Policy", wide: true, sort: "policy", cell: (row) => [row.policy, row.operator_policy].filter(Boolean).join(", ") },
  { id: "consumers", title: "Consumers", wide: true, number: true, sort: "consumers", cell: (row) => count(row.consumers) },
  { id: "capacity", title: "Capacity", number: true, sort: "consumer_capacity", hidden: true, cell: (row) => (row.consumers ? `${Math.round(row.consumer_capacity * 100)} %` : "") },
  { id: "state", title: "State", sort: "state", mark: stateOf, cell: (row) => state(stateOf(row)) },
  { id: "ready", title: "Ready", number: true, sort: "messages_ready", cell: (row) => count(row.messages_ready) },
  { id: "unacked", title: "Unacked", number: true, sort: "messages_unacknowledged", cell: (row) => count(row.messages_unacknowledged) },
  { id: "total", title: "Total", number: true, sort: "messages", cell: (row) => count(row.messages) },
  { id: "trend", title: "Trend", sort: "messages_details.rate", cell: (row) => trend(row) },
  { id: "age", title: "Head age", number: true, hidden: true, sort: "head_message_timestamp", cell: headAge },
  { id: "in_memory", title: "In memory", number: true, hidden: true, sort: "messages_ram", cell: (row) => count(row.messages_ram) },
  { id: "bytes_ready", title: "Bytes ready", number: true, hidden: true, sort: "message_bytes_ready", cell: (row) => bytes(row.message_bytes_ready) },
  { id: "bytes_unacked", title: "Bytes unacked", number: true, hidden: true, sort: "message_bytes_unacknowledged", cell: (row) => bytes(row.message_bytes_unacknowledged) },
  { id: "bytes", title: "Bytes", number: true, sort: "message_bytes", hidden: true, cell: (row) => bytes(row.message_bytes) },
  { id: "in", title: "Incoming", number: true, sort: "message_stats.publish_details.rate", cell: (row) => rateOf(row, "publish") },
  { id: "out", title: "Deliver / get", number: true, sort: "message_stats.deliver_get_details.rate", cell: (row) => rateOf(row, "deliver_get") },
  { id: "redelivered", title: "Redelivered", number: true, sort: "message_stats.redeliver_details.rate", hidden: true, cell: (row) => rateOf(row, "redeliver") },
  { id: "ack", title: "Ack", number: true, sort: "message_stats.ack_details.rate", cell: (row) => rateOf(row, "ack") },
];

function node(row) {
  const lagging = (row.slave_nodes ?? []).length - (row.synchronised_slave_nodes ?? []).length;
  const mirrors = row.slave_nodes?.length ? el("abbr", { class: lagging ? "badge bad" : "badge", title: `mirrors: ${row.slave_nodes.join(", ")}${lagging ? `; ${lagging} not synchronised` : ""}` }, `+${row.slave_nodes.length}`) : "";
  return el("span", {}, row.node, " ", mirrors);
}

/** @param {import("../main.js").Context} context @returns {import("../main.js").View} */
export function queues(context) {
  if (context.names.length === 2) return queue(context);
  const list = new List({
    name: "queues", title: "Queues", columns: COLUMNS, reload: context.reload,
    path: () => (context.vhost() ? `queues/${enc(context.vhost())}` : "queues"),
    key: (row) => `${row.vhost}\n${row.name}`,
    empty: hint("There are no queues. Add one below, or let a client declare it:", "warren perf-test"),
  });
  return {
    title: "Queues",
    element: el("div", {}, el("div", { class: "heading" }, el("h1", {}, "Queues")), list.element, section("Add a queue", adding(context))),
    sources: [list.source],
  };
}

function adding(context) {
  const element = form("Add a queue", [
    { name: "vhost", label: "Virtual host", value: context.vhost() || "/", required: true },
    { name: "name", label: "Name", required: true },
    { name: "type", label: "Type", type: "select", options: [["classic", "classic"], ["quorum", "quorum: durable, with replicas on several nodes"], ["stream", "stream: messages stay and are read by offset"], ["group", "group: a view of several queues"]] },
    { name: "durable", label: "Durable", type: "select", options: [["true", "durable"], ["false", "transient"]] },
    { name: "auto_delete", label: "Delete when its last consumer leaves", type: "check" },
    { name: "node", label: "Node", type: "select", options: [["", "wherever its locator puts it"]] },
    { name: "arguments", label: "Arguments", type: "table", shortcuts: QUEUE_ARGUMENTS.classic },
  ], "Add queue", async ({ vhost, name, type, durable, node, ...values }) => {
    const given = { ...values.arguments, ...(type === "classic" ? {} : { "x-queue-type": type }) };
    await request("PUT", `queues/${enc(vhost)}/${enc(name)}`, { durable: durable === "true", auto_delete: values.auto_delete, arguments: given, ...(node ? { node } : {}) });
    say(`Queue '${name}' is there.`);
    context.reload();
  }, { changed: (name, inputs) => { if (name === "type") inputs.arguments.offer(QUEUE_ARGUMENTS[inputs.type.value()]); } });
  offerNodes(element.querySelector("[name=node]"));
  return element;
}

/** Offer the running nodes, if there are several. Otherwise there is nothing to choose. */
async function offerNodes(select) {
  const field = select.closest("label");
  field.hidden = true;
  if (!may("monitoring")) return;
  const nodes = (await get("nodes?columns=name,running").catch(() => [])).filter((row) => row.running);
  if (nodes.length < 2) return;
  select.append(...nodes.map((row) => el("option", { value: row.name }, row.name)));
  field.hidden = false;
}
