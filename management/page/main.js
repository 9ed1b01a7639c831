/**
 * The frame of the page: the login, the header with its tabs, and the view that the address names.
 * @module
 */

import { get, onLoggedOut } from "./api.js";
import { attempt } from "./dialog.js";
import { el, put, setText } from "./dom.js";
import { Live } from "./live.js";
import { search } from "./search.js";
import { logIn, logOut, may, recall, remember, remembered, session } from "./session.js";
import { ADMIN, admin, firstOfAdmin } from "./views/admin.js";
import { channels } from "./views/channels.js";
import { connections } from "./views/connections.js";
import { exchanges } from "./views/exchanges.js";
import { node } from "./views/node.js";
import { overview } from "./views/overview.js";
import { queues } from "./views/queues.js";

/**
 * @typedef {object} Context
 * @property {string[]} names the names in the address
 * @property {() => string} vhost the virtual host that lists are limited to; empty is all
 * @property {() => void} reload ask the server for everything that is shown again, at once
 */

/** @typedef {{title: string, element: Node, sources: import("./live.js").Source[]}} View */

/** By the first part of the address: the title of its tab, the tag that it needs, and its view. */
const TABS = {
  "": ["Overview", "management", overview],
  connections: ["Connections", "management", connections],
  channels: ["Channels", "management", channels],
  exchanges: ["Exchanges", "management", exchanges],
  queues: ["Queues", "management", queues],
  nodes: ["Overview", "monitoring", (context) => (context.names.length === 1 ? node : overview)(context)],
  ...Object.fromEntries(Object.entries(ADMIN).map(([name, [, tag]]) => [name, ["Admin", tag, admin(name)]])),
};

const PACES = [[0, "live"], [10_000, "every 10 s"], [30_000, "every 30 s"], [-1, "paused"]];

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const main = el("main", { id: "main", tabindex: "-1" });
const live = new Live(report);
const parts = { node: el("span", { class: "cluster" }), state: el("span", { class: "refreshed" }), nav: el("nav", { "aria-label": "Tabs" }), warning: el("div", { class: "warning", role: "alert", hidden: true }) };
let vhost = "";
let isShown = false;

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

function report(state, at) {
  parts.state.dataset.state = state;
  const words = { live: "live", polling: "polling", paused: "paused", lost: "no answer; trying again" }[state];
  setText(parts.state, `${words} · ${at.toLocaleTimeString([], { hour12: false })}`);
}

function showLogin() {
  live.stop();
  isShown = false;
  document.title = "warren";
  const name = el("input", { name: "username", autocomplete: "username", required: true });
  const password = el("input", { name: "password", type: "password", autocomplete: "current-password" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const submit = async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      await logIn(name.value, password.value);
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message === "Login failed" ? "The user name or the password is wrong." : error.message;
      return;
    }
    await showPage();
  };
  put(app, el("form", { class: "login", onsubmit: submit }, el("h1", {}, "warren"),
    el("label", { class: "field" }, el("span", { class: "label" }, "User name"), name),
    el("label", { class: "field" }, el("span", { class: "label" }, "Password"), password),
    problem, el("button", { type: "submit", class: "primary" }, "Log in")));
  name.focus();
}

async function showPage() {
  const vhosts = (await get("vhosts?columns=name")).map((each) => each.name);
  vhost = vhosts.includes(remembered("vhost", "")) ? remembered("vhost", "") : "";
  const choice = el("select", { "aria-label": "Virtual host", value: vhost, onchange: () => { vhost = choice.value; remember("vhost", vhost); live.restart(); } },
    el("option", { value: "" }, "all virtual hosts"), vhosts.map((each) => el("option", { value: each }, each)));
  const pace = el("select", { "aria-label": "Refresh", onchange: () => live.pace(Number(pace.value)) }, PACES.map(([every, words]) => el("option", { value: every }, words)));
  const look = el("select", { "aria-label": "Colours", value: remembered("theme", "auto"), onchange: () => { remember("theme", look.value); theme(look.value); } },
    ["auto", "light", "dark"].map((each) => el("option", {}, each)));
  const leave = el("button", { class: "quiet", onclick: async () => { await attempt(logOut); showLogin(); } }, "Log out");
  put(app,
    el("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the content"),
    el("header", {}, el("div", { class: "top" },
      el("a", { class: "brand", href: "#/" }, "warren"), parts.node, el("span", { class: "space" }), parts.state,
      el("span", { class: "controls" }, search(), choice, pace, look, el("span", { class: "user" }, session.name), leave)), parts.nav),
    parts.warning, main, el("div", { id: "messages", role: "status" }));
  isShown = true;
  route();
}

function route() {
  if (!isShown) return;
  let [tab, ...names] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    names = names.map(decodeURIComponent);
  } catch {
    names = [];
  }
  if (!(tab in TABS) || !may(TABS[tab][1])) tab = "";
  const context = { names, vhost: () => vhost, reload: () => live.restart() };
  const view = TABS[tab][2](context);
  const tabs = Object.keys(TABS).filter((name) => !(name in ADMIN) && name !== "nodes" && may(TABS[name][1]));
  put(parts.nav, [...tabs, firstOfAdmin()].map((name) =>
    el("a", { href: `#/${name}`, "aria-current": TABS[name][0] === TABS[tab][0] ? "page" : null }, TABS[name][0])));
  document.title = `${view.title} – warren`;
  put(main, view.element);
  // On a narrow screen the tab that is open may be out of view.
  for (const tab of document.querySelectorAll("nav [aria-current]")) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  window.scrollTo(0, 0);
  live.follow([...frameSources(), ...view.sources]);
}

/** What the frame itself shows, whatever the view is. */
function frameSources() {
  return [
    { path: () => "overview?columns=cluster_name,warren_version,node", take: (value) => setText(parts.node, `${value.cluster_name} · ${value.warren_version}`) },
    { path: () => (may("monitoring") ? "nodes?columns=name,running,mem_alarm,disk_free_alarm,being_drained,partitions" : null), take: (value) => { warnings.nodes = Array.isArray(value) ? value : []; warn(); } },
    { path: () => "vhosts?columns=name,cluster_state", take: (value) => { warnings.vhosts = Array.isArray(value) ? value : []; warn(); } },
  ];
}

/** What the bar of warnings is made of. */
const warnings = { nodes: [], vhosts: [] };

function warn() {
  const { nodes, vhosts } = warnings;
  const found = [...nodes.flatMap((node) => [
    !node.running && `Node ${node.name} does not run.`,
    node.mem_alarm && `Node ${node.name} is short of memory: publishers are blocked.`,
    node.disk_free_alarm && `Node ${node.name} is short of disk space: publishers are blocked.`,
    node.being_drained && `Node ${node.name} is under maintenance.`,
    node.partitions?.length && `Node ${node.name} has no link to ${node.partitions.join(" and ")}.`,
  ]), ...vhosts.flatMap((vhost) => Object.entries(vhost.cluster_state).map(([node, state]) => state !== "running" && `Virtual host ${vhost.name} does not run on node ${node}.`))].filter(Boolean);
  parts.warning.hidden = !found.length;
  setText(parts.warning, found.join(" "));
}

onLoggedOut(() => { if (isShown) showLogin(); });
window.addEventListener("hashchange", route);
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "")) return;
  const place = document.getElementById("search");
  if (place) {
    event.preventDefault();
    place.focus();
  }
});
theme(remembered("theme", "auto"));
if (await recall().catch(() => false)) await showPage();
else showLogin();
