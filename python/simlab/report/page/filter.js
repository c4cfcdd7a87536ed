/** Which models grids show, and a drop-down of thousands of grids. */
import { modelName } from "./axes.js";
import { page } from "./data.js";
import { button, choice, make } from "./make.js";
import { change, joined, split, state } from "./state.js";

const MOST_OPTIONS = 200; // of a drop-down
const FEW_OPTIONS = 25; // of a drop-down without a search

/** Hidden models, by the names that links use. */
export function hiddenModels() {
  const names = new Set(state.hide ? split(state.hide) : []);
  return new Set(page.models.flatMap((_, number) => (names.has(modelName(number)) ? [number] : [])));
}

/** @param {Set<number>} numbers */
function hide(numbers) {
  change({ hide: joined([...numbers].map(modelName)) });
}

/**
 * Boxes to tick for models, with a search.
 * @param {HTMLDetailsElement} place
 * @param {number[]} shown the models of the grids
 */
export function showModels(place, shown) {
  place.hidden = shown.length < 3;
  const key = joined(shown), hidden = hiddenModels();
  if (place.dataset.models === key) { // what the reader typed and focused stays
    place.querySelectorAll("label input").forEach((box, at) => {
      /** @type {HTMLInputElement} */ (box).checked = !hidden.has(shown[at]);
    });
    return;
  }
  place.dataset.models = key;
  const filter = make("input", { type: "search", "aria-label": "Find models and seeds" });
  const list = make("div", { class: "models" });
  for (const number of shown) {
    const box = make("input", { type: "checkbox" });
    box.checked = !hidden.has(number);
    box.addEventListener("change", () => {
      const now = hiddenModels();
      if (box.checked) now.delete(number);
      else now.add(number);
      hide(now);
    });
    list.append(make("label", {}, box, modelName(number)));
  }
  const isFound = (/** @type {number} */ number) =>
    modelName(number).toLowerCase().includes(filter.value.toLowerCase());
  filter.addEventListener("input", () => shown.forEach((number, at) => {
    /** @type {HTMLElement} */ (list.children[at]).hidden = !isFound(number);
  }));
  place.replaceChildren(make("summary", {}, "Models and seeds that joint grids show"),
    make("div", { class: "bar" }, filter,
      button("Only these", () => hide(new Set(shown.filter((number) => !isFound(number))))),
      button("All", () => hide(new Set()))), list);
}

/**
 * A drop-down, with a search beside it where there are many choices.
 * @param {string} label
 * @param {string[]} choices
 * @param {string} chosen
 * @param {(value: string) => void} act
 */
export function searched(label, choices, chosen, act) {
  if (choices.length <= FEW_OPTIONS) {
    return [choice(label, choices.map((value) => [value, value]), chosen, act)];
  }
  const search = make("input", { type: "search",
    placeholder: `find among ${choices.length.toLocaleString("en")}` });
  const field = choice(label, [], "", act);
  const select = /** @type {HTMLSelectElement} */ (field.lastElementChild);
  const fill = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    const fitting = choices.filter((value) =>
      words.every((word) => value.toLowerCase().includes(word)));
    const first = fitting.slice(0, MOST_OPTIONS);
    const shown = first.includes(chosen) ? first : [chosen, ...first];
    select.replaceChildren(...shown.map((value) => {
      const option = make("option", { value }, value);
      option.selected = value === chosen;
      return option;
    }));
    const more = fitting.length - first.length;
    if (more) {
      select.append(make("option", { disabled: "" },
        `… ${more.toLocaleString("en")} more: use the search`));
    }
  };
  search.addEventListener("input", fill);
  search.addEventListener("keydown", ({ key }) => {
    if (key === "Enter" && select.options.length > 1) {
      act(select.options[select.options[0].value === chosen ? 1 : 0].value);
    }
  });
  fill();
  return [field, make("label", {}, `Find: ${label}`, search)];
}
