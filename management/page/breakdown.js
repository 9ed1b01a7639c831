/**
 * What goes between a channel, an exchange or a queue and each of the others. A broker counts this only in detailed mode
 * (`management_rates_mode`), so the tables are hidden if there is nothing in them.
 * @module
 */

import { enc, encExchange } from "./api.js";
import { el } from "./dom.js";
import { count, rate, visible } from "./format.js";
import { Table } from "./table.js";

const exchange = { title: "Exchange", name: (row) => row.exchange.name || "(AMQP default)", href: ({ exchange: { vhost, name } }) => `#/exchanges/${enc(vhost)}/${encExchange(name)}` };
const queue = { title: "Queue", name: (row) => row.queue.name, href: ({ queue: { vhost, name } }) => `#/queues/${enc(vhost)}/${enc(name)}` };
const channel = { title: "Channel", name: (row) => row.channel_details.name, href: ({ channel_details: { name } }) => `#/channels/${enc(name)}` };

const PUBLISHED = [["publish", "Publish"]];
const DELIVERED = [["deliver_get", "Deliver / get"], ["redeliver", "Redelivered"], ["ack", "Ack"]];

/** A table of one kind: title, what is at the other end, and its counters. */
const KINDS = {
  publishes: ["Publishes", exchange, PUBLISHED], incoming_exchanges: ["Incoming, by exchange", exchange, PUBLISHED], incoming_channels: ["Incoming, by channel", channel, PUBLISHED],
  outgoing: ["Outgoing, by queue", queue, PUBLISHED], by_channel: ["Deliveries, by channel", channel, DELIVERED], by_queue: ["Deliveries, by queue", queue, DELIVERED],
};

/** @param {keyof KINDS} kind @returns {{element: HTMLElement, take: (rows: any[] | undefined) => void}} */
export function breakdown(kind) {
  const [title, end, counters] = KINDS[kind];
  const table = new Table([
    { id: "name", title: end.title, mark: end.name, cell: (row) => el("a", { href: end.href(row) }, visible(end.name(row))) },
    ...counters.flatMap(([id, words]) => [
      { id, title: words, number: true, cell: (row) => count(row.stats[id] ?? 0) },
      { id: `${id}-rate`, title: `${words}/s`, number: true, cell: (row) => rate(row.stats[`${id}_details`]?.rate ?? 0) },
    ]),
  ], end.name, title);
  const element = el("section", { hidden: true }, el("h2", {}, title), table.element);
  return { element, take: (rows) => { element.hidden = !rows?.length; table.update(rows ?? []); } };
}
