/**
 * A single queue: what it has, who consumes it, what is bound to it, and what one can do with it.
 * @module
 */

import { enc, request, withQuery } from "../api.js";
import { badges, features, state, stateOf } from "../badges.js";
import { breakdown } from "../breakdown.js";
import { browser } from "../browse.js";
import { Chart, lengthPoints, rangeChoice, ratePoints, samples } from "../chart.js";
import { BODY_MAX, Facts, bindingsTable, consumersTable, heading, lines, messageShown, missing, publishing } from "../details.js";
import { attempt, confirmed, form, say, section } from "../dialog.js";
import { el, put } from "../dom.js";
import { finder } from "../find.js";
import { bytes, count, headAge, plural, rate, span, trend } from "../format.js";
import { layers } from "../layers.js";
import { moving } from "../move.js";
import { ring } from "../ring.js";
import { may } from "../session.js";
import { Table } from "../table.js";

const LENGTHS = [{ id: "messages", label: "Total" }, { id: "messages_ready", label: "Ready" }, { id: "messages_unacknowledged", label: "Unacked" }];

const RATES = [
  { id: "publish", label: "Publish" }, { id: "deliver", label: "Deliver (manual ack)" }, { id: "deliver_no_ack", label: "Deliver (auto ack)" }, { id: "ack", label: "Consumer ack" },
  { id: "redeliver", label: "Redelivered" }, { id: "get", label: "Get (manual ack)", off: true }, { id: "get_no_ack", label: "Get (auto ack)", off: true }, { id: "get_empty", label: "Get (empty)", off: true },
];

/** @param {import("../main.js").Context} context @returns {import("../main.js").View} */
export function queue(context) {
  const [vhost, name] = context.names;
  const path = `queues/${enc(vhost)}/${enc(name)}`;
  const lengths = new Chart("Queued messages", LENGTHS, count);
  const rates = new Chart("Message rates", RATES, rate);
  const facts = new Facts();
  const counts = new Facts();
  const consumers = consumersTable();
  const bindings = bindingsTable(context.reload);
  const circle = ring(vhost, name, context.reload);
  const stored = layers();
  const lanes = laneTable();
  const [incoming, deliveries] = [breakdown("incoming_exchanges"), breakdown("by_channel")];
  const got = el("div", { class: "messages" });
  let known = { messages: 0 };
  const body = el("div", {}, el("div", { class: "charts" }, lengths.element, rates.element),
    el("div", { class: "columns" }, el("section", {}, el("h2", {}, "Details"), facts.element), el("section", {}, el("h2", {}, "Messages"), counts.element)),
    stored.element, lanes.element, circle.element,
    el("h2", {}, "Consumers"), consumers.element, el("h2", {}, "Bindings"), bindings.element, incoming.element, deliveries.element,
    section("Add a binding", binding(vhost, name, context.reload)),
    section("Publish a message", publishing(vhost, "", name, context.reload)),
    section("Browse messages", browser(vhost, name, () => known.backing_queue_status?.next_seq_id ?? 0)),
    may("administrator") && section("Find messages", finder(vhost, name, () => (known.effective_policy_definition?.["message-index"] ?? "none") !== "none")),
    section("Get messages", [el("p", {}, "This takes messages out of the queue, for a moment or for good. To read them where they are, browse them."), getting(path, got, context.reload), got]),
    section("Move messages", moving(vhost, name, () => known.messages_ready ?? 0, context.reload)));
  const take = (row) => {
    if (row.error) return missing(body, row);
    known = row;
    lengths.update(Object.fromEntries(LENGTHS.map(({ id }) => [id, lengthPoints(row[`${id}_details`], row[id])])));
    rates.update(Object.fromEntries(RATES.map(({ id }) => [id, ratePoints(row.message_stats?.[`${id}_details`])])));
    consumers.update(row.consumer_details ?? []);
    facts.update(factsOf(row));
    counts.update(countsOf(row));
    stored.take(row.backing_queue_status);
    lanes.take(row.lanes);
    incoming.take(row.incoming);
    deliveries.take(row.deliveries);
    circle.take(row);
  };
  const purge = async () => {
    if (!(await confirmed(`Purge queue '${name}' in virtual host '${vhost}'? Its ${plural(known.messages_ready ?? 0, "ready message")} will be lost.`, "Purge"))) return;
    if (await attempt(() => request("DELETE", `${path}/contents`), `Queue '${name}' is purged.`)) context.reload();
  };
  const remove = async () => {
    const answer = await confirmed(`Delete queue '${name}' in virtual host '${vhost}' with its ${plural(known.messages ?? 0, "message")}?`, "Delete queue", [
      { name: "if-empty", label: "only if it has no ready message", type: "check" }, { name: "if-unused", label: "only if it has no consumer", type: "check" }]);
    if (answer && await attempt(() => request("DELETE", withQuery(path, answer)), `Queue '${name}' is deleted.`)) location.hash = "#/queues";
  };
  return {
    title: name,
    element: el("div", {}, heading("Queues", "queues", name, vhost, rangeChoice(context.reload), el("span", { class: "space" }),
      el("button", { class: "danger", onclick: purge }, "Purge"), el("button", { class: "danger", onclick: remove }, "Delete")), body),
    sources: [
      { path: () => withQuery(path, samples("lengths", "msg_rates")), take },
      { path: () => `${path}/bindings`, take: (rows) => { if (Array.isArray(rows)) bindings.update(rows); } },
      ...circle.sources,
    ],
  };
}

function factsOf(row) {
  const given = { ...row.arguments };
  return [
    ["State", state(stateOf(row)), stateOf(row)], ["Type", row.type], ["Features", badges(features(row)), JSON.stringify(features(row))], ["Node", row.node],
    ["Mirrors", nodesOf(row.slave_nodes, row.synchronised_slave_nodes, "not synchronised")], ["Replicas", nodesOf(row.members, row.online, "not running")],
    ["Policy", row.policy ?? "none"], ["Operator policy", row.operator_policy ?? ""],
    ["Effective definition", Object.keys(row.effective_policy_definition ?? {}).length ? lines(row.effective_policy_definition) : "", JSON.stringify(row.effective_policy_definition)],
    ["Arguments", Object.keys(given).length ? lines(given) : "", JSON.stringify(given)],
    ...paceOf(row.pace), ["Members", (row.group_members ?? []).join(", ")],
    ["Exclusive owner", row.owner_pid_details?.name ?? ""], ["Single active consumer", row.single_active_consumer_tag ?? ""],
    ["Consumers", count(row.consumers)], ["Consumer capacity", row.consumers ? `${Math.round(row.consumer_capacity * 100)} %` : ""],
  ];
}

/** Names of nodes, with a remark at those that are not among the good ones. */
function nodesOf(names, good, remark) {
  return (names ?? []).map((name) => (good.includes(name) ? name : `${name} (${remark})`)).join(", ");
}

function countsOf(row) {
  const both = (number, size) => `${count(number)} (${bytes(size)})`;
  return [
    ["Total", both(row.messages, row.message_bytes)], ["Ready", both(row.messages_ready, row.message_bytes_ready)],
    ["Unacked", both(row.messages_unacknowledged, row.message_bytes_unacknowledged)],
    ["In memory", row.messages_ram === undefined ? "" : `${count(row.messages_ram)}: ${count(row.messages_ready_ram)} ready, ${count(row.messages_unacknowledged_ram)} unacked`],
    ["Trend", trend(row)], ["Age of the first message", headAge(row)],
    ["Next number", row.backing_queue_status ? count(row.backing_queue_status.next_seq_id) : ""], ["Mode", row.backing_queue_status?.mode ?? ""],
  ];
}

/** The facts about the pace of a queue; none if it is not paced. */
function paceOf(pace) {
  if (!pace) return [];
  const refused = pace.overflow === "hold" ? "" : count(pace.refused_total);
  return [
    ["Pace", `${pace.rate} in ${span(pace.period_ms / 1000)}, for each ${pace.scope}${pace.group ? `, shared as '${pace.group}'` : ""}`],
    ["Waiting for a slot", pace.waiting ? `${count(pace.waiting)}; the next slot is in ${wait(pace.next_in_ms)}` : "none"],
    ["A new message waits", wait(pace.planned_wait_ms)], ["Refused by the pace", refused], ["Kept although they wait longer", pace.held_total ? count(pace.held_total) : ""],
  ];
}

/** A wait: ms if it is short. */
const wait = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : span(ms / 1000));

/** The longest lanes of a queue with fair lanes. */
function laneTable() {
  const table = new Table([
    { id: "lane", title: "Lane", cell: (row) => row.lane || "(none)" }, { id: "length", title: "Messages", number: true, cell: (row) => count(row.length) },
    { id: "credit", title: "Left in its turn", number: true, cell: (row) => count(row.credit) },
  ], (row) => row.lane, "Lanes");
  const element = el("section", { hidden: true }, el("h2", {}, "Longest lanes"), table.element);
  return { element, take: (rows) => { element.hidden = !rows; table.update(rows ?? []); } };
}

function binding(vhost, name, reload) {
  return form("Add a binding", [
    { name: "source", label: "From exchange", required: true },
    { name: "routing_key", label: "Routing key" },
    { name: "arguments", label: "Arguments", type: "table" },
  ], "Bind", async ({ source, ...values }) => {
    await request("POST", `bindings/${enc(vhost)}/e/${enc(source)}/q/${enc(name)}`, values);
    say("The binding is there.");
    reload();
  });
}

function getting(path, got, reload) {
  return form("Get messages", [
    { name: "ackmode", label: "What happens to the messages", type: "select", options: [
      ["ack_requeue_true", "put back into the queue (they count as redelivered)"], ["reject_requeue_true", "rejected and put back"],
      ["ack_requeue_false", "acknowledged: they are gone"], ["reject_requeue_false", "rejected: dead-lettered or gone"]] },
    { name: "encoding", label: "Payload", type: "select", options: [["auto", "text if it is UTF-8, else Base64"], ["base64", "Base64"]] },
    { name: "count", label: "Messages", type: "number", value: "1", required: true },
  ], "Get messages", async (values) => {
    const messages = await request("POST", `${path}/get`, { ...values, count: Number(values.count), truncate: BODY_MAX });
    put(got, messages.length ? messages.map((each, at) => messageShown(`Message ${at + 1}, ${count(each.message_count)} left`, each)) : el("p", { class: "calm" }, "The queue is empty."));
    reload();
  }, { keep: true });
}
