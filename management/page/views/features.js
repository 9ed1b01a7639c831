/**
 * Feature flags.
 * @module
 */

import { enc, request } from "../api.js";
import { attempt, confirmed } from "../dialog.js";
import { el } from "../dom.js";
import { Table } from "../table.js";

export function features({ reload }) {
  const enable = async (row) => {
    if (!(await confirmed(`Enable the feature '${row.name}'? It cannot be disabled again.`, "Enable"))) return;
    if (await attempt(() => request("PUT", `feature-flags/${enc(row.name)}/enable`), `Feature '${row.name}' is enabled.`)) reload();
  };
  const table = new Table([
    { id: "name", title: "Name", cell: (row) => row.name }, { id: "desc", title: "Description", cell: (row) => row.desc },
    { id: "state", title: "State", mark: (row) => row.state, cell: (row) => (row.state === "enabled" ? "enabled" : el("button", { class: "link", onclick: () => enable(row) }, "Enable")) },
  ], (row) => row.name, "Feature flags");
  return { title: "Feature flags", element: table.element, sources: [{ path: () => "feature-flags", take: (value) => { if (Array.isArray(value)) table.update(value); } }] };
}
