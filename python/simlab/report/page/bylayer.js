/** Curves over layers: change by fine-tuning, localization and block influence. */
import { isJoint, layersOf, modelName, pairOf } from "./axes.js";
import { inWords } from "./csv.js";
import { chartOf } from "./chart.js";
import { element, lengthOf, page, settingOf } from "./data.js";
import { isFound, isFoundFact, isSeenPart } from "./filter.js";
import { make } from "./make.js";
import { curvesOf } from "./profile.js";
import { OTHER, PAIRS, WITHIN, aggregate, relationOf, seedsOf } from "./seeds.js";
import { joined } from "./state.js";
import { gridStep } from "./training.js";

/** @typedef {import("./data.js").Grid} Grid */
/** @typedef {Awaited<ReturnType<typeof changeOf>>} Changes */

const ROUNDING = 1e-6; // of a similarity in float32
const MOST_PAIRS = 12; // of models that were not fine-tuned, whose curves are drawn
/** @type {Record<string, string>} What a score of a layer says. */
const SAID = {
  localization: "The mean over the other layers of neuronsim minus SVCCA. Higher: single neurons, and not only the space that they span, find their like in other layers. Values depend on the models of the joint grid.",
  "block-influence": "1 − the cosine of what goes into a block and what comes out. At 0 a block changes nothing.",
};

/** @param {{kind: string, name: string}} of */
export function measureKey({ kind, name }) {
  return joined([kind, name]);
}

/** @param {Grid} grid */
export function measureOf({ setting }) {
  return measureKey(page.settings[setting]);
}

/**
 * Whether a grid compares fine-tuned models with the model before fine-tuning.
 * @param {Grid} grid
 */
export function isTuned({ x, y }) {
  const [one, other] = [x, y].map((axis) => page.models[page.axes[axis][0][0]]);
  return one.base !== null && one.base === other.base
    && [one.stage, other.stage].sort().join() === "ft,orig";
}

/** What is shown of a measure: grids over seeds, grids of one seed, joint grids; changes first. */
const listed = new Set(page.grids);
export const shownGrids = [...PAIRS.filter((grid) => listed.has(grid)),
  ...page.grids.filter(isJoint)].sort((a, b) => Number(isTuned(b)) - Number(isTuned(a)));

/**
 * The same for grids of the same models over as many seeds, on whichever sides.
 * @param {Grid} grid
 */
function alike(grid) {
  const sides = [grid.x, grid.y].map((axis) => JSON.stringify(page.axes[axis])).sort();
  return [grid.setting, grid.n, gridStep(grid) === null ? "" : grid.comparison, grid.parts?.length,
    grid.parts && relationOf(grid.parts[0]), ...sides].join();
}

/**
 * Grids of which each stands for its pair of models.
 * @param {Grid[]} grids
 */
export function onceOf(grids) {
  const seen = new Set();
  return grids.filter((grid) => {
    const key = alike(grid), isNew = !seen.has(key);
    seen.add(key);
    return isNew;
  });
}

/**
 * Whether a grid compares each layer before and after fine-tuning.
 * @param {Grid} grid
 */
export function hasChange(grid) {
  return hasDifference(grid) && isTuned(grid) && !(grid.parts && relationOf(grid.parts[0]) === OTHER);
}

/**
 * Whether a grid compares each layer with the same one of another model.
 * @param {Grid} grid
 */
function hasDifference(grid) {
  const [low, high] = settingOf(grid).range, isStep = [grid.x, grid.y].some((axis) => page.models[page.axes[axis][0][0]].step !== null);
  return (isTuned(grid) || !isStep) && (low > high || high === 1) && !isJoint(grid) && lengthOf(grid.x) === lengthOf(grid.y) &&
    (!!grid.parts || page.axes[grid.x][0][0] !== page.axes[grid.y][0][0]) && !(grid.parts && relationOf(grid.parts[0]) === WITHIN);
}

/**
 * The grids whose layers have curves: of fine-tuning, or without it of any models, if these are few.
 * @param {Grid[]} grids
 */
export function differing(grids) {
  const tuned = grids.filter(hasChange), any = tuned.length ? tuned : grids.filter(hasDifference);
  return any.length > MOST_PAIRS && !tuned.length ? [] : any;
}

/** @param {Grid} grid */
const nameOfChange = (grid) => `${settingOf(grid).task}: ${pairOf(grid)}`;
const changing = [...new Set(shownGrids.filter(hasChange).map(nameOfChange))]; // each has its own colour

/**
 * How far each layer is from the same layer of the other model, with every seed that the filter lets through.
 * @param {Grid} grid
 */
export async function changeOf(grid) {
  const { range } = settingOf(grid);
  const apart = (/** @type {number} */ value) => (Math.abs(1 - value) < ROUNDING ? 0 : 1 - value);
  const change1 = (/** @type {number} */ value) => (!Number.isFinite(value) ? NaN : range[0] > range[1] ? value : apart(value));
  const layers = layersOf(grid.x);
  const passing = grid.parts?.filter(isSeenPart) ?? [], parts = passing.length ? passing : grid.parts; // or the grid passed by its title
  const seeds = (await seedsOf(grid)).filter((_, at) => !grid.parts || parts?.includes(grid.parts[at])).map((values) =>
    layers.map((_, at) => change1(values[at * layers.length + at])));
  const planes = aggregate(seeds.map((seed) => Float32Array.from(seed)));
  const points = layers.map(({ layer }, at) => {
    const mean = planes.mean[at], sd = planes.sd[at], spread = sd || 0;
    return { layer, mean, sd, low: Math.max(mean - spread, Math.min(mean, 0)), high: mean + spread, seeds: planes.number[at] };
  });
  const name = nameOfChange(grid);
  const names = parts?.map(({ x, y }) => `${modelName(x)} × ${modelName(y)}`);
  return { ...(names && { names }), stem: seeds.length > 1 ? `${name}, mean and SD of ${seeds.length}` : name,
    models: seeds.length, points, lines: seeds, look: changing.indexOf(name), tuned: isTuned(grid) };
}

/** @param {Changes[]} curves */
function isOfTuning(curves) {
  return curves.some(({ tuned }) => tuned);
}

/**
 * @param {(title: string) => Node} headOf
 * @param {Changes[]} curves
 * @param {Pick<import("./data.js").Setting, "name" | "range">} setting
 */
function changeChart(headOf, curves, { name, range }) {
  const title = `${isOfTuning(curves) ? "Change" : "Difference"} by layer, ${range[0] > range[1] ? "" : "1 − "}${name}`;
  const rows = curves.flatMap(({ stem, points }) => points.filter(({ seeds }) => seeds)
    .map(({ layer, mean, sd = NaN, seeds }) => [stem, layer, mean, isNaN(sd) ? null : sd, seeds]));
  return rows.length ? [make("div", {}, headOf(title), chartOf(title, curves, "layer", ["pair", "layer", "mean", "SD", "seeds"], rows))] : [];
}

const scores = page.facts.filter(([, , , what]) => ["localization", "block-influence"].includes(what));
export const hasScores = scores.length > 0;

/**
 * Localization and block influence by layer: a figure for each task, kind and options.
 * @param {(task: string, model: number) => boolean} isWanted
 */
function scoreCharts(isWanted) {
  /** @type {Map<string, {what: string, models: Map<number, Map<number, number>>}>} */
  const found = new Map();
  for (const fact of scores) {
    const [task, model, layer, what, value, , , n, details] = fact;
    if (value === null || !isWanted(task, model) || !isFoundFact(fact)) continue;
    const name = `${task}: ${[what, details, `n = ${inWords(n)}`].filter(Boolean).join(", ")}`;
    const { models } = found.get(name) ?? { models: new Map() };
    found.set(name, { what, models: models.set(model, (models.get(model) ?? new Map()).set(layer, value)) });
  }
  return [...found].map(([name, { what, models }]) => make("div", {}, make("h3", {}, name), make("p", "hint", SAID[what]),
    chartOf(name, curvesOf(models, -1), "layer")));
}

/**
 * The curves of the overview beside each other.
 * @param {Changes[]} curves of changes
 * @param {Pick<import("./data.js").Setting, "name" | "range">} setting
 */
export function curvesBeside(curves, setting) {
  const headOf = (/** @type {string} */ title) => titled(isOfTuning(curves) ? "about-change" : "about-difference", title);
  return make("div", "charts", ...changeChart(headOf, curves, setting), ...scoreCharts(() => true));
}

/**
 * The curves beside a grid: the changes of its models on every task, and their scores on its own.
 * @param {Grid} grid
 */
export async function curvesOfGrid(grid) {
  const own = settingOf(grid), joint = isJoint(grid);
  const models = [grid.x, grid.y].flatMap((axis) => page.axes[axis].map(([model]) => page.models[model].family));
  const changes = differing(onceOf(shownGrids.filter((other) => measureOf(other) === measureOf(grid) &&
    isFound(other) && gridStep(other) === gridStep(grid) &&
    (joint || [other.x, other.y].some((axis) => models.includes(page.models[page.axes[axis][0][0]].family))))));
  const curves = await Promise.all(changes.map(changeOf));
  return [...changeChart((title) => make("h3", {}, title), curves, own),
    ...scoreCharts((task, model) => task === own.task && models.includes(page.models[model].family))].map(withoutFiles);
}

/**
 * A figure without its buttons and table, which the overview has.
 * @param {HTMLElement} figure
 */
function withoutFiles(figure) {
  for (const part of figure.querySelectorAll(".bar, details")) part.remove();
  return figure;
}

/**
 * A heading and its explanation, which stand in the template of the page.
 * @param {string} name
 * @param {string} [title] in place of the template's
 */
export function titled(name, title) {
  const made = /** @type {DocumentFragment} */ (/** @type {HTMLTemplateElement} */ (element(name)).content.cloneNode(true));
  if (title) made.querySelector("h2")?.replaceChildren(title);
  return made;
}
