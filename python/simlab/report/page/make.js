/** Elements of the page: what the views are made of. */
import { rgb } from "./colours.js";
import { element } from "./data.js";

export const FIRST_ROWS = 200; // of a table that is shown
const HASH = /\b[0-9a-f]{40,64}\b/g;

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, string> | string} [attributes] or the class alone
 * @param {(Node | string)[]} content
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  if (typeof attributes === "string") made.className = attributes;
  else for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

let told = 0;
const said = make("span", { class: "said", "aria-hidden": "true" });

/**
 * Say for a moment what was done: at the end of a line of buttons, and to screen readers.
 * @param {string} text
 * @param {Element} line
 */
export function tell(text, line) {
  unsay();
  element("done").textContent = said.textContent = text;
  line.append(said);
  told = setTimeout(unsay, 4000);
}

export function unsay() {
  clearTimeout(told);
  element("done").textContent = "";
  said.remove();
}

/**
 * @param {string} label
 * @param {() => Promise<string | void> | string | void} act returns what it did, if that is not seen
 * @param {string} [name] what the label means, if that is a sign
 */
export function button(label, act, name = label) {
  const made = make("button", { type: "button", "aria-label": name }, label);
  const say = (/** @type {string} */ text) => tell(text, made.parentElement ?? made);
  made.onclick = async () => {
    unsay();
    try {
      const done = await act();
      if (done) say(done);
    } catch (error) {
      say(`${name}: ${error}`);
    }
  };
  return made;
}

/** A drop-down, which stays when its choices change, and with it the focus. */
export class Choice {
  select = make("select");
  written = ""; // the choices as one text

  /**
   * @param {string} label
   * @param {(value: string) => void} act
   */
  constructor(label, act) {
    this.box = make("label", {}, label, this.select);
    this.select.onchange = () => act(this.select.value);
  }

  /**
   * @param {[string, string][]} choices value and words
   * @param {string} chosen
   * @param {string} [more] words about choices that are left out
   */
  set(choices, chosen, more = "") {
    const written = JSON.stringify([choices, more]);
    if (written !== this.written) {
      this.written = written;
      this.select.replaceChildren(...choices.map(([value, words]) => make("option", { value }, words)),
        ...(more ? [make("option", { disabled: "" }, more)] : []));
    }
    this.select.value = chosen;
  }
}

/**
 * What is made when it is opened.
 * @param {string} words
 * @param {() => Promise<Node[]> | Node[]} fill
 */
export function folded(words, fill) {
  const details = make("details", {}, make("summary", {}, words));
  details.ontoggle = async () => {
    if (details.childElementCount === 1) details.append(...await fill());
  };
  return details;
}

export const wide = matchMedia("(min-width: 900px)");

/**
 * Fields that a small screen folds.
 * @param {string} words
 * @param {HTMLElement} fields
 */
export function foldedIfSmall(words, fields) {
  const details = make("details", "small", make("summary", {}, words), fields);
  const fold = () => { details.open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();
  return details;
}

/** @param {import("./colours.js").Lookup} table */
export function colourBar(table) {
  const bar = make("canvas", { width: "256", height: "12", "aria-hidden": "true" });
  const context = /** @type {CanvasRenderingContext2D} */ (bar.getContext("2d"));
  for (let step = 0; step < 256; step++) {
    context.fillStyle = rgb(table, step);
    context.fillRect(step, 0, 1, 12);
  }
  return bar;
}

/** @param {string[]} columns of a table without rows */
export function headed(columns) {
  const table = make("table");
  table.createTHead().insertRow().append(...columns.map((name) => (name ? make("th", { scope: "col" }, name) : make("td"))));
  return { table, body: table.createTBody() };
}

/**
 * @param {string[]} columns
 * @param {unknown[][]} rows
 * @param {string} label
 */
export function tableOf(columns, rows, label) {
  const { table, body } = headed(columns);
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell(), whole = value === null || value === undefined ? "" : String(value);
      cell.textContent = whole.replace(HASH, (hash) => `${hash.slice(0, 12)}…`);
      if (cell.textContent !== whole) cell.title = whole;
      if (typeof value === "number") cell.className = "number";
      else if (String(value).length > 40) cell.className = "long";
    }
  }
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}
