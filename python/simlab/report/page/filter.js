/** The filter of all views. */
import { modelName, titleOf } from "./axes.js";
import { page, settingOf } from "./data.js";
import { state } from "./state.js";

/**
 * @typedef {Record<string, unknown>} Fields texts, numbers or lists of numbers; a word that names
 *   another field lets everything through
 */

/**
 * Whether the filter lets something through. Each of its words is looked for in all fields, or in the
 * field that it names, with alternatives: `task:rte,mrpc`, `seed:1-5`. A word behind "-" must be absent.
 * @param {Fields} fields
 * @param {boolean} [named] whether words without a field count as found
 */
export function passes(fields, named = false) {
  return state.find.toLowerCase().split(/\s+/).every((word) => {
    const [, not, name, wanted] = /^(-?)(?:(task|model|seed|measure|kind):)?(.*)$/.exec(word) ?? [];
    if (!wanted || (name ? fields[name] === undefined : named)) return true;
    const parts = [name ? fields[name] : Object.values(fields)].flat(2);
    return (not === "") === wanted.split(",").some((one) => {
      const [from, to] = one.split("-");
      return name === "seed" ? parts.some((seed) => seed !== null && Number(seed) >= Number(from) && Number(seed) <= Number(to || from))
        : one && parts.join(" ").toLowerCase().includes(one);
    });
  });
}

/** @param {import("./data.js").Grid} grid */
export function isFound(grid) {
  const { task, kind, name } = settingOf(grid);
  const models = [grid.parts ?? [], [grid.x, grid.y].flatMap((axis) => page.axes[axis].map(([x]) => ({ x, y: x })))]
    .flat().flatMap(({ x, y }) => [x, y]);
  return passes({ task, kind, measure: name, model: [titleOf(grid), ...models.map(modelName)],
    seed: models.map((model) => page.models[model].seed) });
}

/**
 * The models that joint grids do not show: the filter names others, or other seeds.
 * @returns {Set<number>}
 */
export function hiddenModels() {
  return new Set(page.models.flatMap(({ seed }, number) =>
    (passes({ model: modelName(number), ...(seed !== null && { seed }) }, true) ? [] : [number])));
}
