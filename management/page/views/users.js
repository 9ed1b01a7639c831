/**
 * Users, and a single one with permissions.
 * @module
 */

import { enc, request } from "../api.js";
import { Facts, heading, missing } from "../details.js";
import { attempt, confirmed, form, say, section } from "../dialog.js";
import { el } from "../dom.js";
import { visible } from "../format.js";
import { Table } from "../table.js";

const TAGS = "administrator, monitoring, policymaker, management; a user without any of them cannot log in here";

const hasPassword = (row) => (row.password_hash ? "yes" : "no");

export function users({ reload }) {
  const table = new Table([
    { id: "name", title: "Name", mark: (row) => row.name, cell: (row) => el("a", { href: `#/users/${enc(row.name)}` }, visible(row.name)) },
    { id: "tags", title: "Tags", cell: (row) => row.tags.join(", ") },
    { id: "vhosts", title: "Can access virtual hosts", cell: (row) => row.vhosts },
    { id: "password", title: "Has a password", cell: hasPassword },
  ], (row) => row.name, "Users");
  let granted = [];
  let rows = [];
  const show = () => table.update(rows.map((row) => ({ ...row, vhosts: granted.filter((each) => each.user === row.name).map((each) => each.vhost).join(", ") || "none" })));
  const adding = form("Add a user", [
    { name: "name", label: "Name", required: true },
    { name: "password", label: "Password", type: "password", hint: "Without a password the user cannot log in." },
    { name: "tags", label: "Tags", hint: TAGS },
  ], "Add user", async ({ name, password, tags }) => {
    await request("PUT", `users/${enc(name)}`, { tags, ...(password ? { password } : { password_hash: "" }) });
    say(`User '${name}' is there. Give permissions next.`);
    reload();
  });
  return {
    title: "Users", element: el("div", {}, table.element, section("Add a user", adding)),
    sources: [
      { path: () => "permissions?columns=user,vhost", take: (value) => { if (Array.isArray(value)) { granted = value; show(); } } },
      { path: () => "users", take: (value) => { if (Array.isArray(value)) { rows = value; show(); } } },
    ],
  };
}

export function user({ names: [name], reload }) {
  const facts = new Facts();
  const permissions = permissionsTable("vhost", "Virtual host", reload);
  const topics = new Table([
    { id: "vhost", title: "Virtual host", cell: (row) => row.vhost }, { id: "exchange", title: "Exchange", cell: (row) => row.exchange },
    { id: "write", title: "Write", cell: (row) => row.write }, { id: "read", title: "Read", cell: (row) => row.read },
    { id: "clear", title: "", mark: (row) => row.exchange, cell: (row) => el("button", { class: "link", onclick: async () => {
      const where = `virtual host '${row.vhost}'${row.exchange && ` with the exchange '${row.exchange}'`}`;
      if (!(await confirmed(`Clear the topic permissions of user '${name}' in ${where}? The user may then use all routing keys there.`, "Clear"))) return;
      if (await attempt(() => request("DELETE", `topic-permissions/${enc(row.vhost)}/${enc(name)}${row.exchange && `/${enc(row.exchange)}`}`))) reload();
    } }, "Clear") },
  ], (row) => `${row.vhost}\n${row.exchange}`, "Topic permissions");
  const remove = async () => {
    if (!(await confirmed(`Delete user '${name}' with all permissions?`, "Delete user"))) return;
    if (await attempt(() => request("DELETE", `users/${enc(name)}`), `User '${name}' is deleted.`)) location.hash = "#/users";
  };
  const topicForm = form("Set topic permissions", [
    { name: "vhost", label: "Virtual host", value: "/", required: true }, { name: "exchange", label: "Exchange", value: "amq.topic" },
    { name: "write", label: "Write: routing keys that may be published", value: ".*" }, { name: "read", label: "Read: routing keys that may be bound", value: ".*" },
  ], "Set topic permissions", async ({ vhost, ...values }) => { await request("PUT", `topic-permissions/${enc(vhost)}/${enc(name)}`, values); reload(); });
  // The form begins with the present tags, because submitting it replaces all of them.
  let areTagsShown = false;
  const showTags = (row) => {
    if (areTagsShown) return;
    areTagsShown = true;
    changing.querySelector("[name=tags]").value = row.tags.join(", ");
  };
  const changing = form("Change password and tags", [
    { name: "password", label: "New password", type: "password", required: true }, { name: "tags", label: "Tags", hint: TAGS },
  ], "Change user", async (values) => {
    await request("PUT", `users/${enc(name)}`, values);
    say(`User '${name}' is changed.`);
    areTagsShown = false;
    reload();
  });
  const body = el("div", {}, facts.element, el("h2", {}, "Permissions"), permissions.element, section("Set permissions", permissionForm({ user: name }, reload)),
    el("h2", {}, "Topic permissions"), topics.element, section("Set topic permissions", topicForm), section("Change password and tags", changing));
  const list = (table) => (value) => { if (Array.isArray(value)) table.update(value); };
  const take = (row) => {
    if (row.error) return missing(body, row);
    showTags(row);
    facts.update([["Tags", row.tags.join(", ") || "none"], ["Has a password", hasPassword(row)]]);
  };
  return {
    title: name, element: el("div", {}, heading("Users", "users", name, undefined, el("span", { class: "space" }), el("button", { class: "danger", onclick: remove }, "Delete")), body),
    sources: [
      { path: () => `users/${enc(name)}`, take },
      { path: () => `users/${enc(name)}/permissions`, take: list(permissions) },
      { path: () => `users/${enc(name)}/topic-permissions`, take: list(topics) },
    ],
  };
}

/** Permissions of a user in virtual hosts, or of users in a virtual host. @param {"user" | "vhost"} column */
export function permissionsTable(column, title, reload) {
  return new Table([
    { id: column, title, cell: (row) => row[column] }, { id: "configure", title: "Configure", cell: (row) => row.configure },
    { id: "write", title: "Write", cell: (row) => row.write }, { id: "read", title: "Read", cell: (row) => row.read },
    { id: "clear", title: "", mark: (row) => row[column], cell: (row) => el("button", { class: "link", onclick: async () => {
      if (!(await confirmed(`Clear the permissions of user '${row.user}' in virtual host '${row.vhost}'?`, "Clear"))) return;
      if (await attempt(() => request("DELETE", `permissions/${enc(row.vhost)}/${enc(row.user)}`))) reload();
    } }, "Clear") },
  ], (row) => row[column], "Permissions");
}

/** The form that sets permissions, of which the user or the virtual host is known. */
export function permissionForm(known, reload) {
  const asked = "user" in known ? { name: "vhost", label: "Virtual host", value: "/", required: true } : { name: "user", label: "User", required: true };
  return form("Set permissions", [asked, ...["configure", "write", "read"].map((each) => ({ name: each, label: `${each[0].toUpperCase()}${each.slice(1)}: names as a regular expression`, value: ".*" }))],
    "Set permissions", async (values) => {
      const { user, vhost, ...rest } = { ...known, ...values };
      await request("PUT", `permissions/${enc(vhost)}/${enc(user)}`, rest);
      say(`The permissions of user '${user}' are set.`);
      reload();
    });
}
