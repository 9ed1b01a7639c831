/**
 * Policies and operator policies, with a preview of the queues that a pattern matches.
 * @module
 */

import { enc, get, request, withQuery } from "../api.js";
import { lines } from "../details.js";
import { attempt, confirmed, form, say, section } from "../dialog.js";
import { el, put } from "../dom.js";
import { OPERATOR_KEYS, POLICY_KEYS } from "../keys.js";
import { count } from "../format.js";
import { may } from "../session.js";
import { Table } from "../table.js";

/** Names that the preview shows. */
const SHOWN = 20;
/** What a policy may apply to instead of all queues, and the type that such queues have. */
const TYPES = { classic_queues: "classic", quorum_queues: "quorum", streams: "stream" };

export function policies({ reload, vhost }) {
  const own = policyTable("policies", "policymaker", reload);
  const operators = policyTable("operator-policies", "administrator", reload);
  const list = (table) => (value) => { if (Array.isArray(value)) table.update(value.filter((row) => !vhost() || row.vhost === vhost())); };
  return {
    title: "Policies",
    element: el("div", {}, el("h2", {}, "Policies"), own.element, may("policymaker") && section("Add or change a policy", policyForm("policies", vhost, reload)),
      el("h2", {}, "Operator policies"), operators.element, may("administrator") && section("Add or change an operator policy", policyForm("operator-policies", vhost, reload))),
    sources: [{ path: () => "policies", take: list(own) }, { path: () => "operator-policies", take: list(operators) }],
  };
}

function policyTable(kind, tag, reload) {
  const remove = async (row) => {
    if (!(await confirmed(`Delete policy '${row.name}' in virtual host '${row.vhost}'? Its queues follow the policy that is next.`, "Delete policy"))) return;
    if (await attempt(() => request("DELETE", `${kind}/${enc(row.vhost)}/${enc(row.name)}`), `Policy '${row.name}' is deleted.`)) reload();
  };
  return new Table([
    { id: "vhost", title: "Virtual host", cell: (row) => row.vhost }, { id: "name", title: "Name", cell: (row) => row.name }, { id: "pattern", title: "Pattern", cell: (row) => row.pattern },
    { id: "apply", title: "Applies to", cell: (row) => row["apply-to"] }, { id: "definition", title: "Definition", mark: (row) => JSON.stringify(row.definition), cell: (row) => lines(row.definition) },
    { id: "priority", title: "Priority", number: true, cell: (row) => String(row.priority) },
    ...(may(tag) ? [{ id: "delete", title: "", mark: (row) => row.name, cell: (row) => el("button", { class: "link", onclick: () => remove(row) }, "Delete") }] : []),
  ], (row) => `${row.vhost}\n${row.name}`, kind === "policies" ? "Policies" : "Operator policies");
}

function policyForm(kind, vhost, reload) {
  const title = kind === "policies" ? "Add or change a policy" : "Add or change an operator policy";
  const matches = el("div", { class: "matches", role: "status" });
  let asked = 0;
  const element = form(title, [
    { name: "vhost", label: "Virtual host", value: vhost() || "/", required: true }, { name: "name", label: "Name", required: true },
    { name: "pattern", label: "Pattern: a regular expression for names", required: true },
    { name: "apply-to", label: "Applies to", type: "select", options: kind === "policies" ? [["all", "exchanges and queues"], "queues", ...Object.keys(TYPES), "exchanges"] : ["queues", ...Object.keys(TYPES)] },
    { name: "priority", label: "Priority", type: "number", value: "0", hint: "Of several policies that match, the one with the highest priority is in effect." },
    { name: "definition", label: "Definition", type: "table", shortcuts: kind === "policies" ? POLICY_KEYS : OPERATOR_KEYS },
  ], kind === "policies" ? "Set policy" : "Set operator policy", async ({ vhost: where, name, priority, ...values }) => {
    await request("PUT", `${kind}/${enc(where)}/${enc(name)}`, { ...values, priority: Number(priority) });
    say(`Policy '${name}' is in effect.`);
    put(matches);
    reload();
  });
  element.addEventListener("input", async (event) => {
    if (!["pattern", "vhost", "apply-to", "name", "priority"].includes(event.target.name)) return;
    const number = asked += 1;
    await new Promise((resolve) => setTimeout(resolve, 200));
    if (number !== asked) return;
    const field = (name) => element.querySelector(`[name="${name}"]`).value;
    const found = await preview(kind, { vhost: field("vhost"), name: field("name"), pattern: field("pattern"), applies: field("apply-to"), priority: Number(field("priority")) });
    if (number === asked) put(matches, found);
  });
  return el("div", {}, element, matches);
}

/** What a pattern matches now: some names of each kind, and for each whether this policy or the one that it has now would be in effect. */
async function preview(kind, { vhost, name, pattern, applies, priority }) {
  if (!pattern) return "";
  // The API filters lists without regard to case, and policies distinguish case.
  const kinds = applies === "all" ? ["queues", "exchanges"] : TYPES[applies] ? ["queues"] : [applies];
  const type = TYPES[applies];
  const column = kind === "policies" ? "policy" : "operator_policy";
  try {
    const known = new Map((await get(`${kind}/${enc(vhost)}`)).map((row) => [row.name, row]));
    const outcome = (row) => {
      const other = known.get(row[column]);
      return other && other.name !== name && el("small", {}, wins({ name, priority }, other) ? ` instead of '${other.name}'` : ` stays under '${other.name}'`);
    };
    return await Promise.all(kinds.map(async (each) => {
      const found = await get(withQuery(`${each}/${enc(vhost)}`, { page: 1, page_size: SHOWN, use_regex: true, name: `(?-i:${pattern})`, columns: `name,type,${column}` }));
      if (!found.filtered_count) return el("p", {}, `The pattern matches none of the ${each}.`);
      const items = type ? found.items.filter((row) => row.type === type) : found.items;
      return [el("p", {}, `The pattern matches ${count(found.filtered_count)} of ${count(found.total_count)} ${each}${found.filtered_count > SHOWN ? `, of which ${SHOWN} are` : ""}${type ? `, here those of type ${type}` : ""}:`),
        el("ul", {}, items.map((row) => el("li", {}, row.name || "(AMQP default)", outcome(row))))];
    }));
  } catch (error) {
    return el("p", { class: "problem" }, error.status === 400 ? "This is no regular expression." : error.message);
  }
}

/** Whether a policy is in effect rather than another one that matches too: the higher priority, then the first name. */
function wins(policy, other) {
  return policy.priority !== other.priority ? policy.priority > other.priority : policy.name < other.name;
}
