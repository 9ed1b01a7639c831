/**
 * Who is logged in, and what that user's tags allow. The server checks all of it again.
 * @module
 */

import { get, request } from "./api.js";

const GRANTS = {
  management: ["management", "policymaker", "monitoring", "administrator"],
  policymaker: ["policymaker", "administrator"],
  monitoring: ["monitoring", "administrator"],
  administrator: ["administrator"],
};

export const session = { name: "", tags: /** @type {string[]} */ ([]) };

/** @param {"management" | "policymaker" | "monitoring" | "administrator"} what */
export function may(what) {
  return session.tags.some((tag) => GRANTS[what].includes(tag));
}

/** Find out who is logged in; returns whether anybody is. Throws ApiError. */
export async function recall() {
  Object.assign(session, await get("login"));
  return Boolean(session.name);
}

/** Throws ApiError. */
export async function logIn(username, password) {
  await request("POST", "login", new URLSearchParams({ username, password }));
  await recall();
}

export async function logOut() {
  await request("DELETE", "login");
}

/** A setting of this browser. */
export function remembered(name, otherwise) {
  try {
    const text = localStorage.getItem(`warren.${name}`);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`warren.${name}`, JSON.stringify(value));
  } catch {
    // In a browser that refuses to store anything, the page only forgets its settings.
  }
}
