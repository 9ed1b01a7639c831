/**
 * Limits of virtual hosts and of users.
 * @module
 */

import { enc, request } from "../api.js";
import { attempt, form, say, section } from "../dialog.js";
import { el } from "../dom.js";
import { Table } from "../table.js";

const VHOST_LIMITS = ["max-connections", "max-queues"];
const USER_LIMITS = ["max-connections", "max-channels"];

export function limits({ reload }) {
  const hosts = limitTable("vhost", "Virtual host", "vhost-limits", reload);
  const users = limitTable("user", "User", "user-limits", reload);
  const list = (table, key) => (value) => {
    if (Array.isArray(value)) table.update(value.flatMap((row) => Object.entries(row.value).map(([name, limit]) => ({ [key]: row[key], name, limit }))));
  };
  return {
    title: "Limits",
    element: el("div", {}, el("h2", {}, "Virtual hosts"), hosts.element, section("Set a limit of a virtual host", limitForm("Set a limit of a virtual host", "vhost", "Virtual host", "vhost-limits", VHOST_LIMITS, reload)),
      el("h2", {}, "Users"), users.element, section("Set a limit of a user", limitForm("Set a limit of a user", "user", "User", "user-limits", USER_LIMITS, reload))),
    sources: [{ path: () => "vhost-limits", take: list(hosts, "vhost") }, { path: () => "user-limits", take: list(users, "user") }],
  };
}

function limitTable(key, title, path, reload) {
  return new Table([
    { id: key, title, cell: (row) => row[key] }, { id: "name", title: "Limit", cell: (row) => row.name }, { id: "limit", title: "Value", number: true, cell: (row) => String(row.limit) },
    { id: "clear", title: "", mark: (row) => row.name, cell: (row) => el("button", { class: "link", onclick: async () => {
      if (await attempt(() => request("DELETE", `${path}/${enc(row[key])}/${enc(row.name)}`), "The limit is cleared.")) reload();
    } }, "Clear") },
  ], (row) => `${row[key]}\n${row.name}`, `Limits: ${title}`);
}

function limitForm(title, key, label, path, names, reload) {
  return form(title, [
    { name: "of", label, value: key === "vhost" ? "/" : "", required: true }, { name: "limit", label: "Limit", type: "select", options: names },
    { name: "value", label: "Value", type: "number", required: true, hint: "0 allows none, and a negative value any number." },
  ], "Set limit", async ({ of, limit, value }) => {
    await request("PUT", `${path}/${enc(of)}/${enc(limit)}`, { value: Number(value) });
    say("The limit is set.");
    reload();
  });
}
