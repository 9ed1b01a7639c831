/**
 * What views of a single object have in common: facts, charts of rates, bindings, and messages.
 * @module
 */

import { enc, encExchange, request } from "./api.js";
import { Chart, ratePoints } from "./chart.js";
import { attempt, confirmed, form, say } from "./dialog.js";
import { el, put, setText } from "./dom.js";
import { count, json, plural, rate, span, visible } from "./format.js";
import { Table } from "./table.js";

/** Facts as pairs of a label and a value. */
export class Facts {
  constructor() {
    this.element = el("dl", { class: "pairs" });
    this.marks = [];
  }

  /** @param {([string, string | Node, string?] | null | undefined | false)[]} rows label, value, and what a value that is a node depends on */
  update(rows) {
    const shown = rows.filter((row) => row && row[1] !== "");
    const labels = shown.map((row) => row[0]).join("\n");
    if (labels !== this.labels) {
      this.labels = labels;
      this.marks = [];
      put(this.element, shown.map(([label]) => [el("dt", {}, label), el("dd")]));
    }
    shown.forEach(([, value, mark], at) => {
      const dd = this.element.children[2 * at + 1];
      if (typeof value === "string") setText(dd, value);
      else if (mark === undefined || this.marks[at] !== mark) put(dd, value);
      this.marks[at] = mark;
    });
  }
}

/** A table of JSON as text, one line for each key. */
export function lines(object) {
  return el("span", { class: "lines" }, Object.entries(object ?? {}).map(([name, value]) => el("span", {}, `${name}: ${json(value)}`)));
}

/** Facts about what a connection or channel waits for, and for how long it has waited. */
export function blocked(row) {
  const causes = [...(row.alarms ?? []).map((each) => `the alarm of the ${each}`), ...row.blocked_by];
  return [["Waits for", causes.join(", ")], ["Waited", row.blocked_seconds ? `${span(row.blocked_seconds)} in all, ${Math.round(100 * row.blocked_share)} % of the time now` : ""]];
}

/** Charts of counters of `message_stats`. */
export function ratesChart(series) {
  const chart = new Chart("Message rates", series, rate);
  return { element: chart.element, take: (row) => chart.update(Object.fromEntries(series.map(({ id }) => [id, ratePoints(row.message_stats?.[`${id}_details`])]))) };
}

/** Consumers, as queues and channels have them. */
export function consumersTable() {
  return new Table([
    { id: "queue", title: "Queue", mark: (row) => row.queue.name, cell: (row) => el("a", { href: `#/queues/${enc(row.queue.vhost)}/${enc(row.queue.name)}` }, visible(row.queue.name)) },
    { id: "channel", title: "Channel", mark: (row) => row.channel_details.name ?? "", cell: (row) => el("a", { href: `#/channels/${enc(row.channel_details.name ?? "")}` }, row.channel_details.name ?? "") },
    { id: "tag", title: "Consumer tag", cell: (row) => row.consumer_tag },
    { id: "ack", title: "Ack required", cell: (row) => (row.ack_required ? "yes" : "no") },
    { id: "exclusive", title: "Exclusive", cell: (row) => (row.exclusive ? "yes" : "no") },
    { id: "prefetch", title: "Prefetch", number: true, cell: (row) => String(row.prefetch_count) },
    { id: "active", title: "Activity", cell: (row) => row.activity_status },
    { id: "blocked", title: "Waits for", cell: (row) => row.blocked_by ?? "" },
    { id: "arguments", title: "Arguments", cell: (row) => (Object.keys(row.arguments).length ? json(row.arguments) : "") },
  ], (row) => `${row.channel_details.name} ${row.consumer_tag}`, "Consumers");
}

/** Bindings with a button that takes one away. @param {() => void} reload */
export function bindingsTable(reload) {
  const unbind = async (row) => {
    const key = row.routing_key ? ` with the routing key '${row.routing_key}'` : "";
    if (!(await confirmed(`Unbind ${row.destination_type} '${row.destination}' from exchange '${row.source}'${key}?`, "Unbind"))) return;
    const kind = row.destination_type === "queue" ? "q" : "e";
    const path = `bindings/${enc(row.vhost)}/e/${encExchange(row.source)}/${kind}/${enc(row.destination)}/${enc(row.properties_key)}`;
    if (await attempt(() => request("DELETE", path), "The binding is gone.")) reload();
  };
  return new Table([
    { id: "source", title: "From", mark: (row) => row.source, cell: (row) => el("a", { href: `#/exchanges/${enc(row.vhost)}/${encExchange(row.source)}` }, visible(row.source) || "(AMQP default)") },
    { id: "key", title: "Routing key", cell: (row) => visible(row.routing_key) },
    { id: "arguments", title: "Arguments", cell: (row) => (Object.keys(row.arguments).length ? json(row.arguments) : "") },
    { id: "to", title: "To", mark: (row) => row.destination, cell: (row) => el("a", { href: `#/${row.destination_type}s/${enc(row.vhost)}/${enc(row.destination)}` }, visible(row.destination)) },
    { id: "kind", title: "Kind", cell: (row) => row.destination_type },
    { id: "unbind", title: "", mark: (row) => row.source, cell: (row) => (row.source === "" ? "" : el("button", { class: "link", onclick: () => unbind(row) }, "Unbind")) },
  ], (row) => `${row.source}\n${row.destination_type}\n${row.destination}\n${row.properties_key}`, "Bindings");
}

/** The form that publishes a message to an exchange. */
export function publishing(vhost, exchange, routingKey, reload) {
  return form("Publish a message", [
    { name: "routing_key", label: "Routing key", value: routingKey },
    { name: "delivery_mode", label: "Delivery mode", type: "select", options: [["2", "persistent"], ["1", "transient"]] },
    { name: "headers", label: "Headers", type: "table" },
    { name: "properties", label: "Properties", type: "table", shortcuts: [["", ["content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id", "app_id"].map((each) => [each, each]).concat([["priority", "0 to 255", "number"], ["timestamp", "seconds since 1970", "number"]])]] },
    { name: "payload", label: "Payload", type: "area" },
    { name: "payload_encoding", label: "Payload encoding", type: "select", options: [["string", "text"], ["base64", "Base64"]] },
  ], "Publish message", async ({ headers, properties, delivery_mode, ...values }) => {
    const given = { ...properties, delivery_mode: Number(delivery_mode), headers };
    const { routed } = await request("POST", `exchanges/${enc(vhost)}/${encExchange(exchange)}/publish`, { ...values, properties: given });
    say(routed ? "The message is published." : "The message reached no queue and is dropped.", !routed);
    reload();
  }, { keep: true });
}

/** Bytes of a message's body that are shown. */
export const BODY_MAX = 50_000;

/** A message with its properties and its body. @param {([string, string] | false)[]} [more] further facts */
export function messageShown(title, each, more = []) {
  const cut = each.payload_bytes > BODY_MAX ? `, the first ${count(BODY_MAX)} shown` : "";
  const facts = new Facts();
  facts.update([
    ...more, ["Exchange", each.exchange || "(AMQP default)"], ["Routing key", each.routing_key], ["Redelivered", each.redelivered ? "yes" : "no"],
    ["Properties", Object.keys(each.properties).length ? lines(each.properties) : ""], ["Payload", `${plural(each.payload_bytes, "byte")}, ${each.payload_encoding === "base64" ? "Base64" : "text"}${cut}`],
  ]);
  return el("article", { class: "got" }, el("h3", {}, title), facts.element, el("pre", { class: "payload", tabindex: "0" }, each.payload));
}

/** The heading of a single object, with the buttons that act on the object as a whole. */
export function heading(kind, list, name, vhost, ...others) {
  return el("div", { class: "heading" }, el("span", { class: "crumb" }, el("a", { href: `#/${list}` }, kind), " /"), el("h1", {}, visible(name)),
    vhost !== undefined && el("span", { class: "crumb" }, `in virtual host ${visible(vhost)}`), others);
}

/** What is shown instead of an object that no longer exists. */
export function missing(element, value) {
  put(element, el("p", { class: "problem", role: "alert" }, `${value.reason ?? value.error}. It may have been deleted.`));
}
