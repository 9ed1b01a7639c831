/**
 * Exchanges, and a single one with its bindings.
 * @module
 */

import { enc, encExchange, get, request, withQuery } from "../api.js";
import { badges, features } from "../badges.js";
import { breakdown } from "../breakdown.js";
import { rangeChoice, samples } from "../chart.js";
import { Facts, bindingsTable, heading, lines, missing, publishing, ratesChart } from "../details.js";
import { attempt, confirmed, form, hint, say, section } from "../dialog.js";
import { el, put } from "../dom.js";
import { EXCHANGE_ARGUMENTS } from "../keys.js";
import { plural, rateOf, visible } from "../format.js";
import { List } from "../table.js";

const titled = (name) => visible(name) || "(AMQP default)";

const COLUMNS = [
  { id: "vhost", title: "Virtual host", wide: true, sort: "vhost", cell: (row) => row.vhost },
  { id: "name", title: "Name", sort: "name", mark: (row) => row.name, cell: (row) => el("a", { href: `#/exchanges/${enc(row.vhost)}/${encExchange(row.name)}` }, titled(row.name)) },
  { id: "type", title: "Type", sort: "type", cell: (row) => row.type },
  { id: "features", title: "Features", wide: true, mark: (row) => JSON.stringify(features(row)), cell: (row) => badges(features(row)) },
  { id: "policy", title: "Policy", sort: "policy", cell: (row) => row.policy ?? "" },
  { id: "in", title: "Rate in", number: true, sort: "message_stats.publish_in_details.rate", cell: (row) => rateOf(row, "publish_in") },
  { id: "out", title: "Rate out", number: true, sort: "message_stats.publish_out_details.rate", cell: (row) => rateOf(row, "publish_out") },
];

/** @param {import("../main.js").Context} context @returns {import("../main.js").View} */
export function exchanges(context) {
  if (context.names.length === 2) return exchange(context);
  const list = new List({
    name: "exchanges", title: "Exchanges", columns: COLUMNS, reload: context.reload,
    path: () => (context.vhost() ? `exchanges/${enc(context.vhost())}` : "exchanges"),
    key: (row) => `${row.vhost}\n${row.name}`,
    empty: hint("There is no virtual host that you may see. An administrator gives permissions:", "warren set_permissions USER '.*' '.*' '.*'"),
  });
  return {
    title: "Exchanges",
    element: el("div", {}, el("div", { class: "heading" }, el("h1", {}, "Exchanges")), list.element, section("Add an exchange", adding(context))),
    sources: [list.source],
  };
}

function adding(context) {
  const element = form("Add an exchange", [
    { name: "vhost", label: "Virtual host", value: context.vhost() || "/", required: true },
    { name: "name", label: "Name", required: true },
    { name: "type", label: "Type", type: "select", options: ["direct", "fanout", "topic", "headers"] },
    { name: "durable", label: "Durable", type: "select", options: [["true", "durable"], ["false", "transient"]] },
    { name: "auto_delete", label: "Delete when its last binding goes", type: "check" },
    { name: "internal", label: "Internal: clients cannot publish to it", type: "check" },
    { name: "arguments", label: "Arguments", type: "table", shortcuts: EXCHANGE_ARGUMENTS },
  ], "Add exchange", async ({ vhost, name, durable, ...values }) => {
    await request("PUT", `exchanges/${enc(vhost)}/${encExchange(name)}`, { ...values, durable: durable === "true" });
    say(`Exchange '${name}' is there.`);
    context.reload();
  });
  offerTypes(element.querySelector("[name=type]"));
  return element;
}

/** Offer the types that extensions of the broker have added. */
async function offerTypes(select) {
  const { exchange_types: types } = await get("overview?columns=exchange_types").catch(() => ({ exchange_types: [] }));
  const known = new Set([...select.options].map((option) => option.value));
  select.append(...types.filter((type) => !known.has(type.name)).map((type) => el("option", { value: type.name }, type.name)));
}

function exchange(context) {
  const [vhost, given] = context.names;
  const name = given === "amq.default" ? "" : given;
  const path = `exchanges/${enc(vhost)}/${encExchange(name)}`;
  const chart = ratesChart([{ id: "publish_in", label: "In" }, { id: "publish_out", label: "Out" }]);
  const facts = new Facts();
  const from = bindingsTable(context.reload);
  const to = bindingsTable(context.reload);
  const [incoming, outgoing] = [breakdown("incoming_channels"), breakdown("outgoing")];
  const take = (row) => {
    if (row.error) return missing(body, row);
    chart.take(row);
    incoming.take(row.incoming);
    outgoing.take(row.outgoing);
    facts.update([
      ["Type", row.type], ["Features", badges(features(row)), JSON.stringify(features(row))], ["Policy", row.policy ?? "none"],
      ["Arguments", Object.keys(row.arguments).length ? lines(row.arguments) : "", JSON.stringify(row.arguments)],
    ]);
  };
  const update = (table) => (rows) => { if (Array.isArray(rows)) table.update(rows); };
  const body = el("div", {},
    el("div", { class: "charts" }, chart.element, el("section", {}, facts.element)),
    name === "" && el("p", { class: "calm" }, "Each queue is bound to the default exchange by its name. These bindings can be neither added nor taken away."),
    name !== "" && [el("h2", {}, "Bindings from this exchange"), from.element, el("h2", {}, "Bindings to this exchange"), to.element, section("Add a binding", binding(vhost, name, context.reload))],
    incoming.element, outgoing.element,
    section("Where would this go?", wherever(vhost, name)),
    section("Publish a message", publishing(vhost, name, "", context.reload)));
  const remove = async () => {
    const answer = await confirmed(`Delete exchange '${name}' in virtual host '${vhost}' with its bindings?`, "Delete exchange",
      [{ name: "if-unused", label: "only if nothing is bound to it", type: "check" }]);
    if (answer && await attempt(() => request("DELETE", withQuery(path, answer)), `Exchange '${name}' is deleted.`)) location.hash = "#/exchanges";
  };
  const sources = [{ path: () => withQuery(path, samples("msg_rates")), take }];
  if (name !== "") {
    sources.push({ path: () => `${path}/bindings/source`, take: update(from) }, { path: () => `${path}/bindings/destination`, take: update(to) });
  }
  return {
    title: titled(name),
    element: el("div", {}, heading("Exchanges", "exchanges", titled(name), vhost, rangeChoice(context.reload), el("span", { class: "space" }), name !== "" && !name.startsWith("amq.") && el("button", { class: "danger", onclick: remove }, "Delete")), body),
    sources,
  };
}

function binding(vhost, name, reload) {
  return form("Add a binding", [
    { name: "kind", label: "To", type: "select", options: [["q", "queue"], ["e", "exchange"]] },
    { name: "destination", label: "Name", required: true },
    { name: "routing_key", label: "Routing key" },
    { name: "arguments", label: "Arguments", type: "table" },
  ], "Bind", async ({ kind, destination, ...values }) => {
    await request("POST", `bindings/${enc(vhost)}/e/${encExchange(name)}/${kind}/${enc(destination)}`, values);
    say("The binding is there.");
    reload();
  });
}

/** Shows which queues a message would reach, while one types. Nothing is published. */
function wherever(vhost, name) {
  const answer = el("div", { class: "reached", role: "status" });
  const element = form("Where would this go?", [
    { name: "routing_key", label: "Routing key" },
    { name: "headers", label: "Headers", type: "table" },
  ], "Show the queues", async ({ routing_key, headers }) => {
    const query = { routing_key, ...Object.fromEntries(Object.entries(headers).map(([key, value]) => [`header.${key}`, value])) };
    const { queues } = await get(withQuery(`route/${enc(vhost)}/${encExchange(name)}`, query));
    put(answer, queues.length ? [el("p", {}, `The message would reach ${plural(queues.length, "queue")}:`), el("ul", {}, queues.map((queue) => el("li", {}, el("a", { href: `#/queues/${enc(vhost)}/${enc(queue)}` }, queue))))]
      : el("p", { class: "problem" }, "The message would reach no queue: it would be dropped, or returned if it is mandatory."));
  }, { keep: true });
  return el("div", {}, el("p", {}, "Nothing is published."), element, answer);
}
