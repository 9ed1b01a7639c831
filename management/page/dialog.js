/**
 * Questions, forms and messages.
 * @module
 */

import { el, put } from "./dom.js";

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
 * Ask before something is destroyed. Resolves to whether the user agrees.
 * @param {string} question which names the object
 * @param {string} verb on the button
 */
export function confirmed(question, verb) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { class: "question", onclose: () => { dialog.remove(); resolve(dialog.returnValue === "yes"); } },
      el("p", {}, question),
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
 * @property {[string, string][]} [shortcuts] of a table: names of keys and hints
 */

/**
 * A form. What was typed stays when the action fails, and goes when it has worked.
 * @param {string} title
 * @param {Field[]} fields
 * @param {string} verb
 * @param {(values: Record<string, any>) => Promise<any>} action
 * @param {{keep?: boolean}} [options] `keep` what was typed also when it has worked
 */
export function form(title, fields, verb, action, options = {}) {
  const error = el("p", { class: "problem", role: "alert", hidden: true });
  /** @type {Record<string, {value: () => any, clear: () => void}>} */
  const inputs = {};
  const rows = fields.map((field) => {
    const { element, ...input } = control(field);
    inputs[field.name] = input;
    if (field.type === "check") return el("label", { class: "check" }, element, field.label);
    const parts = [el("span", { class: "label" }, field.label), element, field.hint && el("small", {}, field.hint)];
    return field.type === "table" ? el("div", { class: "field", role: "group", "aria-label": field.label }, parts) : el("label", { class: "field" }, parts);
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
  return element;
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
  const shortcuts = (field.shortcuts ?? []).map(([name, hint]) => el("button", { type: "button", class: "shortcut", title: hint, onclick: () => {
    const type = /length|ttl|expires|limit|priority|age|size|credit|factor|params/.test(name) ? "number" : "text";
    add(name, "", type).children[1].focus();
  } }, name));
  const element = el("div", {}, lines, el("div", { class: "shortcuts" }, el("button", { type: "button", onclick: () => add().children[0].focus() }, "+ key"), shortcuts));
  const value = () => Object.fromEntries([...lines.children].filter((line) => line.children[0].value !== "").map((line) =>
    [line.children[0].value, typed(line.children[0].value, line.children[1].value, line.children[2].value)]));
  return { element, value, clear: fill };
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
