/**
 * Virtual hosts, and a single one.
 * @module
 */

import { enc, request } from "../api.js";
import { state } from "../badges.js";
import { Facts, heading, missing } from "../details.js";
import { attempt, confirmed, form, say, section } from "../dialog.js";
import { el, setText } from "../dom.js";
import { bytes, count, rateOf, visible } from "../format.js";
import { Table } from "../table.js";
import { permissionForm, permissionsTable } from "./users.js";

const states = (row) => [...new Set(Object.values(row.cluster_state))].join(", ");

export function vhosts({ reload }) {
  const table = new Table([
    { id: "name", title: "Name", mark: (row) => row.name, cell: (row) => el("a", { href: `#/vhosts/${enc(row.name)}` }, visible(row.name)) },
    { id: "state", title: "State", mark: states, cell: (row) => state(states(row)) },
    { id: "description", title: "Description", cell: (row) => row.description }, { id: "tags", title: "Tags", cell: (row) => row.tags.join(", ") },
    { id: "type", title: "Default queue type", cell: (row) => (row.default_queue_type === "undefined" ? "classic" : row.default_queue_type) },
    { id: "ready", title: "Ready", number: true, cell: (row) => count(row.messages_ready) }, { id: "unacked", title: "Unacked", number: true, cell: (row) => count(row.messages_unacknowledged) },
    { id: "publish", title: "Publish", number: true, cell: (row) => rateOf(row, "publish") }, { id: "deliver", title: "Deliver / get", number: true, cell: (row) => rateOf(row, "deliver_get") },
    { id: "from", title: "From clients", number: true, cell: (row) => `${bytes(row.recv_oct_details.rate)}/s` }, { id: "to", title: "To clients", number: true, cell: (row) => `${bytes(row.send_oct_details.rate)}/s` },
  ], (row) => row.name, "Virtual hosts");
  const adding = form("Add a virtual host", [
    { name: "name", label: "Name", required: true }, { name: "description", label: "Description" }, { name: "tags", label: "Tags", hint: "separated by commas" },
    { name: "type", label: "Default queue type", type: "select", options: ["classic", "quorum", "stream"], hint: "of queues that are declared without a type" },
  ], "Add virtual host", async ({ name, type, ...values }) => {
    await request("PUT", `vhosts/${enc(name)}`, { ...values, default_queue_type: type });
    say(`Virtual host '${name}' is there. You have all permissions in it.`);
    reload();
  });
  return {
    title: "Virtual hosts", element: el("div", {}, table.element, section("Add a virtual host", adding)),
    sources: [{ path: () => "vhosts", take: (value) => { if (Array.isArray(value)) table.update(value); } }],
  };
}

export function vhost({ names: [name], reload }) {
  const facts = new Facts();
  const trace = el("button", {});
  const permissions = permissionsTable("user", "User", reload);
  const body = el("div", {}, facts.element, el("h2", {}, "Permissions"), permissions.element, section("Set permissions", permissionForm({ vhost: name }, reload)));
  const remove = async () => {
    if (!(await confirmed(`Delete virtual host '${name}' with all its queues, messages, exchanges, permissions and policies?`, "Delete virtual host"))) return;
    if (await attempt(() => request("DELETE", `vhosts/${enc(name)}`), `Virtual host '${name}' is deleted.`)) location.hash = "#/vhosts";
  };
  const take = (row) => {
    if (row.error) return missing(body, row);
    setText(trace, row.tracing ? "Stop tracing" : "Start tracing");
    trace.onclick = async () => {
      const done = `Virtual host '${name}' is ${row.tracing ? "no longer traced" : "traced: copies of its messages go to exchange 'amq.rabbitmq.trace'"}.`;
      if (await attempt(() => request("PUT", `vhosts/${enc(name)}`, { tracing: !row.tracing }), done)) reload();
    };
    facts.update([
      ["State", Object.entries(row.cluster_state).map(([node, each]) => `${node}: ${each}`).join(", ")], ["Description", row.description], ["Tags", row.tags.join(", ")],
      ["Tracing", row.tracing ? "on" : "off"], ["Ready", count(row.messages_ready)], ["Unacked", count(row.messages_unacknowledged)],
    ]);
  };
  return {
    title: name, element: el("div", {}, heading("Virtual hosts", "vhosts", name, undefined, el("span", { class: "space" }), trace, el("button", { class: "danger", onclick: remove }, "Delete")), body),
    sources: [{ path: () => `vhosts/${enc(name)}`, take }, { path: () => `vhosts/${enc(name)}/permissions`, take: (value) => { if (Array.isArray(value)) permissions.update(value); } }],
  };
}
