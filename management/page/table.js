/**
 * Lists: a table whose rows keep their place in the keyboard's focus while their cells change, and a list that the
 * server sorts, filters and divides into pages, so that only what is visible is fetched.
 * @module
 */

import { withQuery } from "./api.js";
import { el, put, setText } from "./dom.js";
import { count } from "./format.js";
import { remember, remembered } from "./session.js";

/**
 * @typedef {object} Column
 * @property {string} id
 * @property {string} title
 * @property {(row: any) => string | Node} cell
 * @property {(row: any) => string} [mark] a text that changes whenever a cell that is a node must be made again
 * @property {string} [sort] the field by which the server sorts
 * @property {boolean} [number]
 * @property {boolean} [wrap] a long text goes on in the next line
 * @property {boolean} [wide] left out on narrow screens, where the columns behind it matter more
 * @property {boolean} [hidden] not shown unless chosen
 */

/** @param {Column} column @returns {string} the classes of its cells */
const classOf = (column) => ["number", "wrap", "wide"].filter((name) => column[name]).join(" ");

/** A table that is updated in place: each row keeps its elements as long as its key is listed. */
export class Table {
  /**
   * @param {Column[]} columns
   * @param {(row: any) => string} key
   * @param {string} label
   */
  constructor(columns, key, label) {
    this.key = key;
    this.head = el("tr");
    this.body = el("tbody");
    /** @type {Map<string, {tr: HTMLElement, marks: string[]}>} */
    this.known = new Map();
    this.element = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", {}, el("thead", {}, this.head), this.body), this.none = el("p", { class: "none", hidden: true }, "None."));
    this.show(columns, (column) => el("th", { class: classOf(column), scope: "col" }, column.title));
  }

  /** Show these columns, with heads that `head` makes. */
  show(columns, head) {
    this.columns = columns;
    put(this.head, columns.map(head));
    this.known.clear();
    put(this.body);
  }

  /** @param {any[]} rows */
  update(rows) {
    this.none.hidden = rows.length > 0;
    const gone = new Set(this.known.keys());
    rows.forEach((row, at) => {
      const key = this.key(row);
      gone.delete(key);
      let known = this.known.get(key);
      if (!known) {
        known = { tr: el("tr", {}, this.columns.map((column) => el("td", { class: classOf(column) }))), marks: [] };
        this.known.set(key, known);
      }
      this.columns.forEach((column, number) => this.cell(known, column, number, row));
      if (this.body.children[at] !== known.tr) this.body.insertBefore(known.tr, this.body.children[at] ?? null);
    });
    for (const key of gone) {
      this.known.get(key)?.tr.remove();
      this.known.delete(key);
    }
  }

  cell(known, column, number, row) {
    const td = known.tr.children[number];
    if (column.mark) {
      const mark = column.mark(row);
      if (known.marks[number] === mark) return;
      known.marks[number] = mark;
      put(td, column.cell(row));
      return;
    }
    const content = column.cell(row);
    if (content instanceof Node) put(td, content);
    else {
      setText(td, content);
      td.classList.toggle("zero", content === "0" || content === "0/s");
    }
  }
}

/** A measure with its limit as a bar and in words. */
export function meter(value, limit, isBad, words) {
  if (value === undefined) return el("span", {}, "–");
  return el("span", { class: isBad ? "meter alarm" : "meter" }, el("meter", { min: 0, max: limit || 1, value, "aria-hidden": "true" }), words);
}

/** What a user has set of each list since the page was loaded. */
const settings = new Map();

const SIZES = [50, 100, 200, 500];

/** A list of the server, in pages. */
export class List {
  /**
   * @param {object} options
   * @param {string} options.name its place in what the browser remembers
   * @param {string} options.title
   * @param {() => string} options.path
   * @param {Column[]} options.columns
   * @param {(row: any) => string} options.key
   * @param {Node} options.empty what to do if there is nothing
   * @param {() => void} options.reload
   * @param {Record<string, string>} [options.sort] field and direction at first
   */
  constructor(options) {
    this.options = options;
    this.set = settings.get(options.name) ?? { page: 1, size: remembered("page_size", 100), name: "", regex: false, sort: "", reverse: false };
    settings.set(options.name, this.set);
    const hidden = remembered(`hidden.${options.name}`, null);
    this.hidden = new Set(hidden ?? options.columns.filter((column) => column.hidden).map((column) => column.id));
    this.table = new Table([], options.key, options.title);
    this.summary = el("span", { class: "summary", role: "status" });
    this.pages = el("span", { class: "pages" });
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.nothing = el("div", { class: "nothing", hidden: true });
    this.timer = 0;
    this.filter = el("input", {
      type: "search", class: "filter", placeholder: "Filter by name", "aria-label": `Filter ${options.title} by name`,
      value: this.set.name, oninput: () => this.later(),
    });
    const regex = el("input", { type: "checkbox", onchange: (event) => this.change({ regex: event.target.checked, page: 1 }) });
    regex.checked = this.set.regex;
    const size = el("select", { "aria-label": "Rows of a page", value: String(this.set.size), onchange: (event) => this.resize(event) },
      SIZES.map((each) => el("option", { value: each }, `${each} rows`)));
    this.element = el("section", { class: "list" },
      el("div", { class: "tools" }, this.filter, el("label", { class: "check" }, regex, "regular expression"),
        this.summary, el("span", { class: "space" }), this.pages, size, this.chooser()),
      this.problem, this.table.element, this.nothing);
    this.heads();
    this.source = { path: () => this.path(), take: (value) => this.take(value) };
  }

  path() {
    const { page, size, name, regex, sort, reverse } = this.set;
    return withQuery(this.options.path(), { page, page_size: size, name, use_regex: name && regex, sort, sort_reverse: reverse });
  }

  change(what) {
    Object.assign(this.set, what);
    this.options.reload();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.change({ name: this.filter.value, page: 1 }), 200);
  }

  resize(event) {
    const size = Number(event.target.value);
    remember("page_size", size);
    this.change({ size, page: 1 });
  }

  chooser() {
    const boxes = this.options.columns.filter((column) => column.id !== "name").map((column) => {
      const box = el("input", { type: "checkbox", onchange: () => this.choose(column.id, box.checked) });
      box.checked = !this.hidden.has(column.id);
      return el("label", { class: "check" }, box, column.title);
    });
    return el("details", { class: "chooser" }, el("summary", { title: "Choose columns", "aria-label": "Choose columns" }, "+/−"), el("div", { class: "menu" }, boxes));
  }

  choose(id, isShown) {
    if (isShown) this.hidden.delete(id);
    else this.hidden.add(id);
    remember(`hidden.${this.options.name}`, [...this.hidden]);
    this.heads();
    if (this.value) this.take(this.value);
  }

  heads() {
    const columns = this.options.columns.filter((column) => !this.hidden.has(column.id));
    this.table.show(columns, (column) => this.headOf(column));
  }

  headOf(column) {
    const isSorted = column.sort !== undefined && column.sort === (this.set.sort || "name");
    const order = isSorted ? (this.set.reverse ? "descending" : "ascending") : null;
    const head = column.sort === undefined ? column.title
      : el("button", { class: "sort", "data-sort": column.sort, onclick: () => this.sort(column) }, column.title);
    return el("th", { class: classOf(column), scope: "col", "aria-sort": order }, head);
  }

  sort(column) {
    const isSorted = column.sort === (this.set.sort || "name");
    // The first click on a column sorts numbers from the largest down, and names from A to Z.
    const reverse = isSorted ? !this.set.reverse : Boolean(column.number);
    this.set.sort = column.sort === "name" ? "" : column.sort;
    this.set.reverse = reverse;
    const focused = document.activeElement?.getAttribute("data-sort");
    this.heads();
    if (this.value) this.take(this.value);
    if (focused) this.table.head.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
    this.change({ page: 1 });
  }

  take(value) {
    if (!Array.isArray(value?.items)) {
      if (value?.error === "page_out_of_range") return this.change({ page: 1 });
      this.problem.hidden = false;
      setText(this.problem, value?.reason === "Pagination parameters are invalid" ? "This is no regular expression." : String(value?.reason ?? "There is no answer."));
      return;
    }
    this.value = value;
    this.problem.hidden = true;
    this.table.update(value.items);
    const isEmpty = value.total_count === 0;
    this.table.element.hidden = isEmpty;
    this.nothing.hidden = !isEmpty;
    if (isEmpty && !this.nothing.hasChildNodes()) put(this.nothing, this.options.empty);
    const filtered = value.filtered_count === value.total_count ? "" : `, filtered from ${count(value.total_count)}`;
    setText(this.summary, `displaying ${count(value.item_count)} of ${count(value.filtered_count)}${filtered}`);
    this.showPages(value);
  }

  showPages({ page, page_count: last }) {
    const mark = `${page}/${last}`;
    if (this.shownPages === mark) return;
    this.shownPages = mark;
    const to = (number, text, label) => el("button", { disabled: number < 1 || number > last, "aria-label": label, onclick: () => this.change({ page: number }) }, text);
    put(this.pages, last > 1 && [to(page - 1, "‹", "Previous page"), ` page ${count(page)} of ${count(last)} `, to(page + 1, "›", "Next page")]);
  }
}
