/** What a measure was taken of, where measures differ in it: results, tasks and models. */
import { measureOf, measureKey } from "./bylayer.js";
import { cut } from "./picture.js";
import { page, settingOf } from "./data.js";

/** @typedef {{sources: Set<string>, tasks: Set<string>, models: Set<string>}} Taken */

const MOST_WIDE = 400; // pixels of a list of names

/**
 * @param {import("./data.js").Grid[]} grids
 * @param {import("./data.js").Training[]} trainings
 */
function takenOf(grids, trainings) {
  /** @type {Map<string, Taken>} */
  const found = new Map();
  const at = (/** @type {string} */ key) => {
    const known = found.get(key) ?? { sources: new Set(), tasks: new Set(), models: new Set() };
    found.set(key, known);
    return known;
  };
  for (const grid of grids) {
    const { sources, tasks, models } = at(measureOf(grid)), setting = settingOf(grid);
    for (const source of setting.sources) sources.add(source);
    tasks.add(setting.task);
    for (const axis of [grid.x, grid.y]) {
      for (const [model] of page.axes[axis]) models.add(page.models[model].base ?? page.models[model].stem);
    }
  }
  for (const training of trainings) {
    const { tasks, models } = at(measureKey(training));
    tasks.add(training.task);
    models.add(training.run);
  }
  return found;
}

/**
 * Words on every measure; none where all measures were taken of the same.
 * @param {import("./data.js").Grid[]} grids
 * @param {import("./data.js").Training[]} trainings
 * @returns {Map<string, {brief: string, whole: string}>}
 */
export function takenWords(grids, trainings) {
  const found = takenOf(grids, trainings), all = [...found.values()];
  const parts = /** @type {const} */ (["sources", "tasks", "models"]).filter((part) =>
    new Set(all.map((taken) => [...taken[part]].sort().join("\n"))).size > 1);
  const listed = (/** @type {Set<string>} */ names) => cut([...names].join(", "), MOST_WIDE);
  return new Map([...found].map(([key, taken]) => [key, {
    brief: parts[0] ? listed(taken[parts[0]]) : "",
    whole: parts.length ? `This measure: ${parts.map((part) => `${part === "sources" ? "results" : part} ${
      listed(taken[part])}`).join("; ")}. Other measures have other ones.` : "",
  }]));
}
