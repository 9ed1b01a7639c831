/**
 * Export and import of definitions, and the name of the cluster.
 * @module
 */

import { enc, get, request } from "../api.js";
import { form, say } from "../dialog.js";
import { el } from "../dom.js";

export function definitions({ reload }) {
  const scope = { name: "vhost", label: "Virtual host", hint: "Empty means all of them, with users and permissions." };
  const path = (vhost) => (vhost ? `definitions/${enc(vhost)}` : "definitions");
  const file = el("input", { type: "file", accept: ".json,application/json", "aria-label": "File with definitions" });
  return {
    title: "Definitions",
    element: el("div", { class: "columns" },
      el("section", {}, el("h2", {}, "Export definitions"), el("p", {}, "A file with users, virtual hosts, permissions, policies, queues, exchanges and bindings; no messages."),
        form("Export definitions", [scope], "Download", async ({ vhost }) => save(`${vhost ? `warren-${vhost.replace(/[^\w.-]/g, "_")}` : "warren"}.json`, await get(path(vhost))), { keep: true })),
      el("section", {}, el("h2", {}, "Import definitions"), el("p", {}, "Existing objects stay, and those that the file defines are changed to match it. A file with an error changes nothing."), file,
        form("Import definitions", [scope], "Import", async ({ vhost }) => {
          if (!file.files.length) throw new Error("Choose a file first.");
          await request("POST", path(vhost), parsed(await file.files[0].text()));
          say("The definitions are imported.");
          reload();
        }, { keep: true })),
      el("section", {}, el("h2", {}, "Name of the cluster"), form("Name of the cluster", [{ name: "name", label: "Name", required: true }], "Set name", async (values) => {
        await request("PUT", "cluster-name", values);
        say("The cluster has its new name.");
        reload();
      }))),
    sources: [],
  };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("The file contains no JSON.");
  }
}

/** Have the browser save an object as a file. */
function save(name, value) {
  const address = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
