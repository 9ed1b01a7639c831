/**
 * Connections, and a single one.
 * @module
 */

import { enc, request, withQuery } from "../api.js";
import { state } from "../badges.js";
import { Chart, rangeChoice, ratePoints, samples } from "../chart.js";
import { Facts, blocked, heading, lines, missing } from "../details.js";
import { attempt, confirmed, hint } from "../dialog.js";
import { el } from "../dom.js";
import { bytes, count, moment } from "../format.js";
import { may, session } from "../session.js";
import { List, Table } from "../table.js";
import { CHANNEL_COLUMNS } from "./channels.js";

const flowing = (row, name) => `${bytes(row[`${name}_details`]?.rate)}/s`;
const client = (row) => [row.client_properties.product, row.client_properties.version].filter(Boolean).join(" ");

const COLUMNS = [
  { id: "vhost", title: "Virtual host", wide: true, sort: "vhost", cell: (row) => row.vhost },
  { id: "name", title: "Name", sort: "name", mark: (row) => row.name, cell: (row) => el("a", { href: `#/connections/${enc(row.name)}` }, row.name) },
  { id: "given", title: "Given name", sort: "user_provided_name", cell: (row) => row.user_provided_name ?? "" },
  { id: "node", title: "Node", sort: "node", hidden: true, cell: (row) => row.node },
  { id: "user", title: "User", wide: true, sort: "user", cell: (row) => row.user },
  { id: "state", title: "State", sort: "state", mark: (row) => row.state, cell: (row) => state(row.state) },
  { id: "tls", title: "TLS", wide: true, sort: "ssl", cell: (row) => (row.ssl ? "yes" : "no") },
  { id: "protocol", title: "Protocol", hidden: true, cell: (row) => row.protocol },
  { id: "channels", title: "Channels", number: true, sort: "channels", cell: (row) => count(row.channels) },
  { id: "channel_max", title: "Channel max", number: true, hidden: true, sort: "channel_max", cell: (row) => count(row.channel_max) },
  { id: "frame_max", title: "Frame max", number: true, hidden: true, sort: "frame_max", cell: (row) => bytes(row.frame_max) },
  { id: "auth", title: "Authentication", hidden: true, cell: (row) => row.auth_mechanism },
  { id: "client", title: "Client", cell: client },
  { id: "from", title: "From client", number: true, sort: "recv_oct_details.rate", cell: (row) => flowing(row, "recv_oct") },
  { id: "to", title: "To client", number: true, sort: "send_oct_details.rate", cell: (row) => flowing(row, "send_oct") },
  { id: "heartbeat", title: "Heartbeat", number: true, hidden: true, cell: (row) => `${row.timeout} s` },
  { id: "since", title: "Connected at", hidden: true, sort: "connected_at", cell: (row) => moment(row.connected_at) },
];

/** @param {import("../main.js").Context} context @returns {import("../main.js").View} */
export function connections(context) {
  if (context.names.length === 1) return connection(context);
  const list = new List({
    name: "connections", title: "Connections", columns: COLUMNS, reload: context.reload,
    path: () => (context.vhost() ? `vhosts/${enc(context.vhost())}/connections` : "connections"),
    key: (row) => row.name,
    empty: hint("No client is connected. Connect one to the port of AMQP, or try:", "warren perf-test"),
  });
  return { title: "Connections", element: el("div", {}, el("div", { class: "heading" }, el("h1", {}, "Connections")), list.element), sources: [list.source] };
}

function connection(context) {
  const [name] = context.names;
  const chart = new Chart("Data rates", [{ id: "recv_oct", label: "From client" }, { id: "send_oct", label: "To client" }], (value) => `${bytes(value)}/s`);
  const facts = new Facts();
  const properties = new Facts();
  const channels = new Table(CHANNEL_COLUMNS.filter((column) => !column.hidden && column.id !== "vhost"), (row) => row.name, "Channels");
  const close = el("button", { class: "danger", hidden: true, onclick: () => closeConnection(name) }, "Force close");
  const body = el("div", {}, el("div", { class: "charts" }, chart.element, el("section", {}, facts.element)), el("h2", {}, "Channels"), channels.element, el("h2", {}, "Client properties"), properties.element);
  const take = (row) => {
    if (row.error) return missing(body, row);
    close.hidden = row.user !== session.name && !may("administrator");
    chart.update({ recv_oct: ratePoints(row.recv_oct_details), send_oct: ratePoints(row.send_oct_details) });
    facts.update([
      ["State", state(row.state), row.state], ["Given name", row.user_provided_name ?? ""], ["User", row.user], ["Virtual host", row.vhost], ["Node", row.node],
      ["Protocol", row.protocol], ["Authentication", row.auth_mechanism], ["Connected at", moment(row.connected_at)], ["Heartbeat", `${row.timeout} s`],
      ["Frame max", bytes(row.frame_max)], ["Channel max", count(row.channel_max)], ["Received", bytes(row.recv_oct)], ["Sent", bytes(row.send_oct)], ...blocked(row),
      ["TLS", row.ssl ? [row.ssl_protocol, row.ssl_cipher].filter(Boolean).join(", ") || "yes" : "no"], ["Certificate of the client", row.peer_cert_subject ?? ""],
    ]);
    properties.update(Object.entries(row.client_properties).map(([key, value]) => [key, typeof value === "object" && value ? lines(value) : String(value), JSON.stringify(value)]));
  };
  return {
    title: name, element: el("div", {}, heading("Connections", "connections", name, undefined, rangeChoice(context.reload), el("span", { class: "space" }), close), body),
    sources: [
      { path: () => withQuery(`connections/${enc(name)}`, samples("data_rates")), take },
      { path: () => `connections/${enc(name)}/channels`, take: (rows) => { if (Array.isArray(rows)) channels.update(rows); } },
    ],
  };
}

async function closeConnection(name) {
  const answer = await confirmed(`Close the connection '${name}'? Its client gets the error 320 and may connect again.`, "Close connection", [{ name: "reason", label: "Reason, which the client is given" }]);
  if (!answer) return;
  const close = () => {
    // A header has no other letters.
    if (/[^\x20-\x7e]/.test(answer.reason)) throw new Error("The reason may have only letters, digits and signs of ASCII.");
    return request("DELETE", `connections/${enc(name)}`, undefined, answer.reason ? { "x-reason": answer.reason } : {});
  };
  if (await attempt(close, "The connection is closed.")) location.hash = "#/connections";
}
