/**
 * Questions, forms and messages.
 * @module
 */

import { el, put } from "./dom.js";
import { visible } from "./format.js";

/** Show a message for a while, read out by screen readers. @param {string} text @param {boolean} [isBad] */
export function say(text, isBad = false) {
  const place = document.getElementById("messages");
  const message = el("div", { class: isBad ? "message bad" : "message" }, text, el("button", { "aria-label": "Close", onclick: () => message.remove() }, "×"));
  place?.append(message);
  setTimeout(() => message.remove(), isBad ? 15_000 : 5_000);
}

/**
 * Do something and say how it went. Returns whether it went well.
 * @param {() => Promise<any>} action
 * @param {string} [done]
 */
export async function attempt(action, done) {
  try {
    await action();
  } catch (error) {
    say(error.message, true);
    return false;
  }
  if (done) say(done);
  return true;
}

/**
 * Ask before something is destroyed. Resolves to the values of the fields if the user agrees, and to null otherwise.
 * @param {string} question which names the object
 * @param {string} verb on the button
 * @param {Field[]} [fields] further questions
 * @returns {Promise<Record<string, any> | null>}
 */
export function confirmed(question, verb, fields = []) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => ({ name: field.name, ...labelled(field) }));
    const values = () => Object.fromEntries(inputs.map((input) => [input.name, input.value()]));
    const dialog = el("dialog", { class: "question", onclose: () => { dialog.remove(); resolve(dialog.returnValue === "yes" ? values() : null); } },
      el("p", {}, visible(question)), inputs.map((input) => input.row),
      el("div", { class: "buttons" },
        el("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel"),
        el("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, verb)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text" | "password" | "number" | "check" | "select" | "area" | "table" | "search"} [type]
 * @property {any} [value]
 * @property {(string | [string, string])[]} [options] of a select: values, or values with their words
 * @property {string} [hint]
 * @property {boolean} [required]
 * @property {[string, import("./keys.js").Shortcut[]][]} [shortcuts] of a table: by subject, the names that have a meaning
 */

/**
 * A form. What was typed stays when the action fails, and goes when it has worked.
 * @param {string} title
 * @param {Field[]} fields
 * @param {string} verb
 * @param {(values: Record<string, any>) => Promise<any>} action
 * @param {{keep?: boolean, changed?: (name: string, inputs: Record<string, any>) => void}} [options] `keep` what was typed
 *   also when it has worked; `changed` is called with the name of a field that the user has changed
 */
export function form(title, fields, verb, action, options = {}) {
  const error = el("p", { class: "problem", role: "alert", hidden: true });
  /** @type {Record<string, {value: () => any, clear: () => void}>} */
  const inputs = {};
  const rows = fields.map((field) => {
    const { row, ...input } = labelled(field);
    inputs[field.name] = input;
    return row;
  });
  const button = el("button", { type: "submit", class: "primary" }, verb);
  const element = el("form", { "aria-label": title, onsubmit: async (event) => {
    event.preventDefault();
    error.hidden = true;
    button.setAttribute("disabled", "");
    try {
      await action(Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value()])));
      if (!options.keep) Object.values(inputs).forEach((input) => input.clear());
    } catch (problem) {
      error.hidden = false;
      error.textContent = problem.message;
    } finally {
      button.removeAttribute("disabled");
    }
  } }, rows, error, el("div", { class: "buttons" }, button));
  if (options.changed) element.addEventListener("change", (event) => options.changed(event.target.name, inputs));
  return element;
}

/** The control of a field in a row with its label. */
function labelled(field) {
  const { element, ...input } = control(field);
  if (field.type === "check") return { ...input, row: el("label", { class: "check" }, element, field.label) };
  const parts = [el("span", { class: "label" }, field.label), element, field.hint && el("small", {}, field.hint)];
  const row = field.type === "table" ? el("div", { class: "field", role: "group", "aria-label": field.label }, parts) : el("label", { class: "field" }, parts);
  return { ...input, row };
}

function control(field) {
  const start = field.value ?? "";
  const common = { name: field.name, required: field.required };
  if (field.type === "check") {
    const element = el("input", { type: "checkbox", ...common });
    const clear = () => { element.checked = Boolean(field.value); };
    clear();
    return { element, value: () => element.checked, clear };
  }
  if (field.type === "select") {
    const element = el("select", { ...common },
      (field.options ?? []).map((each) => el("option", { value: Array.isArray(each) ? each[0] : each }, Array.isArray(each) ? each[1] : each)));
    if (start !== "") element.value = start;
    return { element, value: () => element.value, clear: () => {} };
  }
  if (field.type === "table") return keys(field);
  const tag = field.type === "area" ? "textarea" : "input";
  const element = el(tag, { ...common, type: tag === "input" ? field.type ?? "text" : null, rows: tag === "textarea" ? 4 : null, autocomplete: "off", spellcheck: "false", value: start });
  return { element, value: () => element.value, clear: () => { element.value = start; } };
}

/** Names and values of any type, as arguments, headers and definitions have them. */
function keys(field) {
  const lines = el("div", { class: "keys" });
  const add = (name = "", value = "", type = "text") => {
    const line = el("div", { class: "key" },
      el("input", { "aria-label": "Name", placeholder: "name", value: name }),
      el("input", { "aria-label": "Value", placeholder: "value", value }),
      el("select", { "aria-label": "Type", value: type }, ["text", "number", "boolean", "list or table"].map((each) => el("option", {}, each))),
      el("button", { type: "button", "aria-label": "Remove", onclick: () => line.remove() }, "×"));
    lines.append(line);
    return line;
  };
  const fill = () => {
    put(lines);
    for (const [name, value] of Object.entries(field.value || {})) {
      const type = typeof value === "object" ? "list or table" : typeof value === "string" ? "text" : typeof value;
      add(name, typeof value === "object" ? JSON.stringify(value) : String(value), type);
    }
  };
  fill();
  const shortcut = ([name, hint, type = "text", start = ""]) => el("button", { type: "button", class: "shortcut", title: hint, onclick: () => add(name, start, type).children[1].focus() }, name);
  const groups = el("div", { class: "groups" });
  const offer = (offered) => put(groups, (offered ?? []).map(([title, names]) => el("div", { class: "group" }, title && el("span", { class: "label" }, title), el("div", { class: "shortcuts" }, names.map(shortcut)))));
  offer(field.shortcuts);
  const element = el("div", {}, lines, el("div", { class: "shortcuts" }, el("button", { type: "button", onclick: () => add().children[0].focus() }, "+ key")), groups);
  const value = () => Object.fromEntries([...lines.children].filter((line) => line.children[0].value !== "").map((line) =>
    [line.children[0].value, typed(line.children[0].value, line.children[1].value, line.children[2].value)]));
  return { element, value, clear: fill, offer };
}

function typed(name, text, type) {
  if (type === "text") return text;
  if (type === "boolean") return text.trim() === "true";
  if (type === "number") {
    if (text.trim() === "" || Number.isNaN(Number(text))) throw new Error(`The value of '${name}' is no number.`);
    return Number(text);
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`The value of '${name}' is no list or table in JSON.`);
  }
}

/** A part of a view that can be folded. */
export function section(title, content, options = {}) {
  return el("details", { class: "section", open: options.open ?? false }, el("summary", {}, title), el("div", { class: "inside" }, content));
}

/** What an empty list shows: a text, and a command with a button that copies it. */
export function hint(text, command) {
  return el("div", {}, el("p", {}, text), el("div", { class: "command" }, el("code", {}, command),
    el("button", { type: "button", onclick: () => attempt(() => navigator.clipboard.writeText(command), "The command is copied.") }, "Copy")));
}
