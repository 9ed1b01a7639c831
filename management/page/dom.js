/**
 * Elements of the page. Every text becomes a text node, never markup, so a name with any character is only shown.
 * @module
 */

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * A new element: `el("a", {class: "name", href: "#/", onclick: f}, "text", other)`.
 * @param {string} tag
 * @param {Record<string, any>} [attributes] `on…` are listeners, `true` is an attribute without a value
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** As `el`, for a drawing. @returns {SVGElement} */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name !== "value" || element.tagName === "OPTION") element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  // The value of a <select> can be set only after its options have been added.
  if ("value" in attributes && element.tagName !== "OPTION") element.value = attributes.value;
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/**
 * Replace what an element contains.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Set a text, and touch the element only if the text has changed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
