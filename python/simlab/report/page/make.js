/** Elements of the page: what the views are made of. */
import { element } from "./data.js";
import { headCell } from "./heatmap.js";

export const FIRST_ROWS = 200; // of a table that is shown

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} content
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

let told = 0;

/**
 * Say for a moment what was done.
 * @param {string} text
 */
export function tell(text) {
  clearTimeout(told);
  element("done").textContent = text;
  told = setTimeout(() => { element("done").textContent = ""; }, 4000);
}

/**
 * @param {string} label
 * @param {() => Promise<string | void> | string | void} act returns what it did, if that is not seen
 * @param {string} [name] what the label means, if that is a sign
 */
export function button(label, act, name = label) {
  const made = make("button", { type: "button", "aria-label": name }, label);
  made.addEventListener("click", async () => {
    element("done").textContent = "";
    try {
      const done = await act();
      if (done) tell(done);
    } catch (error) {
      tell(`${name}: ${error}`);
    }
  });
  return made;
}

/**
 * @param {string} label
 * @param {[string, string][]} choices value and words
 * @param {string} chosen
 * @param {(value: string) => void} act
 */
export function choice(label, choices, chosen, act) {
  const select = make("select");
  for (const [value, words] of choices) {
    const option = make("option", { value }, words);
    option.selected = value === chosen;
    select.append(option);
  }
  select.addEventListener("change", () => act(select.value));
  return make("label", {}, label, select);
}

/**
 * @param {string[]} columns
 * @param {unknown[][]} rows
 * @param {string} label
 */
export function tableOf(columns, rows, label) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  for (const column of columns) head.append(headCell(column, "col"));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell();
      cell.textContent = value === null || value === undefined ? "" : String(value);
      if (typeof value === "number") cell.className = "number";
      else if (String(value).length > 40) cell.className = "long";
    }
  }
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}
