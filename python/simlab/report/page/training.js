/** Steps of trainings: their curves of layers, and the grids that a slider leads through. */
import { inWords } from "./csv.js";
import { isJoint, layerTitle } from "./axes.js";
import { chartOf } from "./chart.js";
import { page } from "./data.js";
import { make } from "./make.js";
import { relationOf } from "./seeds.js";
import { joined } from "./state.js";

/** @typedef {import("./data.js").Grid} Grid */

const MOST_CURVES = 13;

/**
 * The model of the rows of a grid; null if it has several models.
 * @param {Grid} grid
 */
function rowModel(grid) {
  return isJoint(grid) ? null : page.models[page.axes[grid.x][0][0]];
}

/** @param {Grid} grid */
export function gridStep(grid) {
  return rowModel(grid)?.step ?? null;
}

/**
 * What is the same for grids of the steps of one training.
 * @param {Grid} grid
 */
export function runOf(grid) {
  const [x, y] = [grid.x, grid.y].map((axis) => page.axes[axis][0][0]), other = page.models[y];
  return joined([grid.setting, grid.n, grid.comparison, rowModel(grid)?.run ?? "",
    String(page.models[x].seed), other.run || other.family, relationOf({ x, y })]);
}

/**
 * Grids of the steps of the training that a grid is a step of, by step.
 * @param {Grid} grid
 */
export function stepsOf(grid) {
  if (gridStep(grid) === null) return [];
  const run = runOf(grid);
  return page.grids.filter((other) => other.setting === grid.setting && gridStep(other) !== null &&
    !other.parts === !grid.parts && runOf(other) === run)
    .sort((a, b) => Number(gridStep(a)) - Number(gridStep(b)));
}

/** @param {import("./data.js").Training} training */
export function trainingChart({ task, kind, name, run, reference, end, n, steps, layers, mean, sd, number }) {
  const every = Math.ceil(layers.length / MOST_CURVES);
  const curves = layers.map((layer, at) => ({ stem: layerTitle(layer), models: Math.max(...number[at]),
    points: steps.map((step, of) => {
      const value = mean[at][of] ?? NaN, spread = sd[at][of] ?? 0;
      return { layer: step, mean: value, sd: sd[at][of] ?? NaN, low: value - spread, high: value + spread, seeds: number[at][of] };
    }) })).filter((_, at) => (layers.length - 1 - at) % every === 0);
  const rows = layers.flatMap((layer, at) => steps.map((step, of) =>
    [layer, step, mean[at][of], sd[at][of], number[at][of]]));
  const seeds = Math.max(...number.flat());
  return make("div", {}, make("h3", {}, `${task}: ${run}, ${name} with ${reference}`),
    make("p", "hint", `${kind}, n = ${inWords(n)}, ${seeds > 1 ? `mean and SD over ${seeds} seeds` : "1 seed"}` +
      `${end === null ? "" : `, compared with step ${inWords(end)}`}.` +
      (every > 1 ? ` ${curves.length} of ${layers.length} layers.` : "")),
    chartOf(`${task}, ${run}, ${name} with ${reference}`, curves, "step", ["layer", "step", "mean", "SD", "seeds"], rows));
}
