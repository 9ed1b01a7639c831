/**
 * Requests to the HTTP API beside the page, with the cookie of the login.
 * @module
 */

/** Paths are relative to the page, so a prefix of all paths needs no setting here. */
const BASE = new URL("../api/", location.href).href;

/** Stops the browser from asking for a password itself: the page has a form for it. */
export const HEADERS = { "x-requested-with": "warren" };

/** A refusal of the API, with its reason in words. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} reason
   */
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** Called when a request is refused because nobody is logged in any more. */
let loggedOut = () => {};
export function onLoggedOut(listener) {
  loggedOut = listener;
}

/** One segment of a path. The default exchange has no name, so the API gives it one. */
export function enc(name) {
  return encodeURIComponent(name);
}

/** @param {string} name */
export function encExchange(name) {
  return enc(name === "" ? "amq.default" : name);
}

/** A path with a query; parameters without a value are left out. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export function url(path) {
  return BASE + path;
}

/**
 * One request; returns the JSON of the answer, or null for an empty one. Throws ApiError.
 * @param {string} method
 * @param {string} path below /api/
 * @param {any} [body]
 * @param {Record<string, string>} [headers]
 */
export async function request(method, path, body, headers = {}) {
  const options = { method, headers: { ...HEADERS, ...headers }, credentials: "same-origin" };
  if (body !== undefined) options.body = body instanceof URLSearchParams ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(url(path), options);
  } catch {
    throw new ApiError(0, "The management process does not answer. Is the broker running?");
  }
  const text = await answer.text();
  const value = text ? parsed(text) : null;
  if (answer.ok) return value;
  if (answer.status === 401 && value?.error !== "not_authorised") loggedOut();
  throw new ApiError(answer.status, reasonOf(value, answer.status));
}

export const get = (path) => request("GET", path);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { reason: text };
  }
}

/** The reason of a refusal as a sentence. */
export function reasonOf(value, status) {
  const reason = value?.reason ?? value?.error;
  if (Array.isArray(reason)) return reason.map(String).join(": ");
  return reason ? String(reason) : `The API answered with status ${status}.`;
}
