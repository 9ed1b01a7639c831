/**
 * What an administrator and a policymaker set: users, virtual hosts, policies, limits, features and definitions.
 * @module
 */

import { el } from "../dom.js";
import { may } from "../session.js";
import { definitions } from "./definitions.js";
import { features } from "./features.js";
import { limits } from "./limits.js";
import { policies } from "./policies.js";
import { user, users } from "./users.js";
import { vhost, vhosts } from "./vhosts.js";

/** By the first part of the address: its title, the tag that it needs, the view of all, and that of one. */
export const ADMIN = {
  users: ["Users", "administrator", users, user],
  vhosts: ["Virtual hosts", "administrator", vhosts, vhost],
  policies: ["Policies", "management", policies],
  limits: ["Limits", "administrator", limits],
  "feature-flags": ["Feature flags", "administrator", features],
  definitions: ["Definitions", "administrator", definitions],
};

/** The address of the first part that this user may see. */
export function firstOfAdmin() {
  return Object.keys(ADMIN).find((name) => may(ADMIN[name][1])) ?? "policies";
}

/** @param {string} part @returns {(context: import("../main.js").Context) => import("../main.js").View} */
export function admin(part) {
  return (context) => {
    const [title, , all, one] = ADMIN[part];
    const view = one && context.names.length === 1 ? one(context) : all(context);
    const tabs = el("nav", { class: "sub", "aria-label": "Admin" }, Object.entries(ADMIN).filter(([, [, tag]]) => may(tag)).map(([name, [each]]) =>
      el("a", { href: `#/${name}`, "aria-current": name === part ? "page" : null }, each)));
    return { title: view.title ?? title, element: el("div", {}, tabs, view.element), sources: view.sources };
  };
}
