/**
 * Channels, and a single one.
 * @module
 */

import { enc, withQuery } from "../api.js";
import { state, stateOf } from "../badges.js";
import { breakdown } from "../breakdown.js";
import { rangeChoice, samples } from "../chart.js";
import { Facts, blocked, consumersTable, heading, missing, ratesChart } from "../details.js";
import { hint } from "../dialog.js";
import { el } from "../dom.js";
import { count, rateOf } from "../format.js";
import { List } from "../table.js";

const mode = (row) => [row.confirm && "C", row.transactional && "T"].filter(Boolean).join(" ");

export const CHANNEL_COLUMNS = [
  { id: "name", title: "Channel", sort: "name", mark: (row) => row.name, cell: (row) => el("a", { href: `#/channels/${enc(row.name)}` }, row.name) },
  { id: "node", title: "Node", sort: "node", hidden: true, cell: (row) => row.node },
  { id: "vhost", title: "Virtual host", wide: true, sort: "vhost", cell: (row) => row.vhost },
  { id: "user", title: "User", wide: true, sort: "user", cell: (row) => row.user },
  { id: "mode", title: "Mode", mark: mode, cell: (row) => el("abbr", { title: "C: publisher confirms; T: transactional" }, mode(row)) },
  { id: "state", title: "State", sort: "state", mark: stateOf, cell: (row) => state(stateOf(row)) },
  { id: "unconfirmed", title: "Unconfirmed", number: true, sort: "messages_unconfirmed", cell: (row) => count(row.messages_unconfirmed) },
  { id: "prefetch", title: "Prefetch", number: true, sort: "prefetch_count", cell: (row) => `${row.prefetch_count}${row.global_prefetch_count ? ` (${row.global_prefetch_count} global)` : ""}` },
  { id: "unacked", title: "Unacked", number: true, sort: "messages_unacknowledged", cell: (row) => count(row.messages_unacknowledged) },
  { id: "uncommitted", title: "Uncommitted", number: true, hidden: true, sort: "messages_uncommitted", cell: (row) => count(row.messages_uncommitted) },
  { id: "publish", title: "Publish", number: true, sort: "message_stats.publish_details.rate", cell: (row) => rateOf(row, "publish") },
  { id: "confirm", title: "Confirm", number: true, sort: "message_stats.confirm_details.rate", cell: (row) => rateOf(row, "confirm") },
  { id: "dropped", title: "Unroutable (drop)", number: true, hidden: true, sort: "message_stats.drop_unroutable_details.rate", cell: (row) => rateOf(row, "drop_unroutable") },
  { id: "returned", title: "Unroutable (return)", number: true, hidden: true, sort: "message_stats.return_unroutable_details.rate", cell: (row) => rateOf(row, "return_unroutable") },
  { id: "deliver", title: "Deliver / get", number: true, sort: "message_stats.deliver_get_details.rate", cell: (row) => rateOf(row, "deliver_get") },
  { id: "redelivered", title: "Redelivered", number: true, hidden: true, sort: "message_stats.redeliver_details.rate", cell: (row) => rateOf(row, "redeliver") },
  { id: "ack", title: "Ack", number: true, sort: "message_stats.ack_details.rate", cell: (row) => rateOf(row, "ack") },
];

const RATES = [
  { id: "publish", label: "Publish" }, { id: "confirm", label: "Confirm" }, { id: "deliver", label: "Deliver (manual ack)" },
  { id: "deliver_no_ack", label: "Deliver (auto ack)" }, { id: "ack", label: "Ack" }, { id: "redeliver", label: "Redelivered" },
];

/** @param {import("../main.js").Context} context @returns {import("../main.js").View} */
export function channels(context) {
  if (context.names.length === 1) return channel(context);
  const list = new List({
    name: "channels", title: "Channels", columns: CHANNEL_COLUMNS, reload: context.reload,
    path: () => (context.vhost() ? `vhosts/${enc(context.vhost())}/channels` : "channels"),
    key: (row) => row.name,
    empty: hint("No channel is open. Clients open them in their connections; to try it:", "warren perf-test"),
  });
  return { title: "Channels", element: el("div", {}, el("div", { class: "heading" }, el("h1", {}, "Channels")), list.element), sources: [list.source] };
}

function channel(context) {
  const [name] = context.names;
  const chart = ratesChart(RATES);
  const facts = new Facts();
  const consumers = consumersTable();
  const [publishes, deliveries] = [breakdown("publishes"), breakdown("by_queue")];
  const body = el("div", {}, el("div", { class: "charts" }, chart.element, el("section", {}, facts.element)), el("h2", {}, "Consumers"), consumers.element, publishes.element, deliveries.element);
  const take = (row) => {
    if (row.error) return missing(body, row);
    chart.take(row);
    consumers.update(row.consumer_details);
    publishes.take(row.publishes);
    deliveries.take(row.deliveries);
    const owner = row.connection_details.name;
    facts.update([
      ["Connection", el("a", { href: `#/connections/${enc(owner)}` }, owner), owner], ["State", state(stateOf(row)), stateOf(row)], ["User", row.user], ["Virtual host", row.vhost], ["Node", row.node],
      ["Mode", row.confirm ? "publisher confirms" : row.transactional ? "transactional" : "plain"], ["Prefetch of a consumer", count(row.prefetch_count)], ["Prefetch of the channel", count(row.global_prefetch_count)],
      ["Unacked", count(row.messages_unacknowledged)], ["Unconfirmed", count(row.messages_unconfirmed)], ["Uncommitted messages", count(row.messages_uncommitted)], ["Uncommitted acks", count(row.acks_uncommitted)],
      ...blocked(row),
    ]);
  };
  return {
    title: name, element: el("div", {}, heading("Channels", "channels", name, undefined, rangeChoice(context.reload)), body),
    sources: [{ path: () => withQuery(`channels/${enc(name)}`, samples("msg_rates")), take }],
  };
}
