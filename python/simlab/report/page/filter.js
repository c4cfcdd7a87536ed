/** The filter of all views. */
import { isJoint, modelName, titleOf } from "./axes.js";
import { inWords } from "./csv.js";
import { isStored, page, settingOf } from "./data.js";
import { state } from "./state.js";

const FIELDS = ["task", "model", "seed", "measure", "kind"];
const KNOWN = new RegExp(`(?<=^|\\s)-?(${FIELDS.join("|")}):`, "gi");

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

/** @param {number} model */
function isSeen(model) {
  const { seed } = page.models[model];
  return passes({ model: modelName(model), ...(seed !== null && { seed }) }, true);
}

/**
 * Whether a seed of a mean passes, by the names and the seeds of its two models.
 * @param {Pick<import("./seeds.js").Part, "x" | "y">} part
 */
export function isSeenPart({ x, y }) {
  return passes({ model: [x, y].map(modelName), seed: [x, y].map((model) => page.models[model].seed) }, true);
}

/**
 * Whether a value of a layer passes.
 * @param {import("./data.js").Fact} fact
 */
export function isFoundFact([task, model, , measure, , , , , kind]) {
  return passes({ task, kind, measure, model: modelName(model), seed: page.models[model].seed });
}

/**
 * Whether a grid passes, or a joint grid with some of its models.
 * @param {import("./data.js").Grid} grid
 */
export function isFound(grid) {
  const { task, kind, name: measure } = settingOf(grid);
  const sides = [grid.x, grid.y].flatMap((axis) => page.axes[axis].map(([model]) => model));
  const models = (grid.parts ?? []).flatMap(({ x, y }) => [x, y]).concat(sides);
  const names = [titleOf(grid), ...models.map(modelName)];
  return isJoint(grid) ? models.some(isSeen) && passes({ task, kind, measure, names })
    : passes({ task, kind, measure, model: names, seed: models.map((model) => page.models[model].seed) });
}

/**
 * How many grids pass, of results and over seeds, and what the words of the filter do not do.
 * @param {import("./data.js").Grid[]} grids that pass
 * @param {number} figures of curves that pass
 */
export function filterWords(grids, figures) {
  const counts = [isStored, (/** @type {import("./data.js").Grid} */ { parts }) => !!parts].map((isCounted) =>
    [grids, page.grids].map((of) => of.filter(isCounted).length));
  const [own, means] = counts.map(([some, all]) => `${inWords(some)} of ${inWords(all)}`);
  const unknown = grids.length || figures ? "" : /(?:^|\s)-?([a-z]+):/i.exec(state.find.replace(KNOWN, ""))?.[1];
  const isPartly = grids.some(({ parts }) => parts?.some((part) => !isSeenPart(part)));
  return `${own} grids${counts[1][1] ? `, ${means} means over seeds` : ""}` +
    (page.views.length ? `, ${inWords(figures)} of ${inWords(page.views.length)} figures in Curves` : "") +
    (unknown ? `: “${unknown}” is not a field; fields are ${FIELDS.join(", ")}` : "") +
    (isPartly ? ". Sentences and curves count the seeds that pass; pictures of grids, and dots, count all seeds." : "");
}

/** The models that joint grids do not show: the filter names others, or other seeds. */
export function hiddenModels() {
  return new Set(page.models.map((_, model) => model).filter((model) => !isSeen(model)));
}
