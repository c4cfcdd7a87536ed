/** Layers along the sides of grids: names, orders, and which models are shown. */
import { inWords } from "./csv.js";
import { page, settingOf } from "./data.js";
import { BETWEEN, SAME, OTHER, WITHIN, relationOf } from "./seeds.js";
import { joined } from "./state.js";

/**
 * @typedef {import("./data.js").Grid} Grid
 * @typedef {{model: number, layer: number, at: number, join?: number}} Layer `at` is its place in the
 *   stored grid, `join` the height at which its cluster joins that of the next layer.
 * @typedef {{start: number, end: number, name: string}} Group
 */

/**
 * @param {number} axis
 * @returns {Layer[]}
 */
export function layersOf(axis) {
  let at = 0;
  return page.axes[axis].flatMap(([model, layers]) =>
    layers.map((layer) => ({ model, layer, at: at++ })));
}

/** @param {Grid} grid */
export function isJoint({ x, y }) {
  return page.axes[x].length > 1 || page.axes[y].length > 1;
}

/** @param {number} layer */
export function layerName(layer) {
  return layer === 0 ? "emb" : String(layer);
}

/**
 * How often each name is there.
 * @param {string[]} names
 */
function counted(names) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const name of names) found.set(name, (found.get(name) ?? 0) + 1);
  return found;
}

const sameName = counted(page.models.map(({ name }) => name));
const modelNames = page.models.map(({ name, seed }) =>
  (sameName.get(name) === 1 || seed === null ? name : `${name} (seed ${seed})`));

/** @param {number} model */
export function modelName(model) {
  return modelNames[model];
}

/** @param {number} layer */
export function layerTitle(layer) {
  return layer === 0 ? "embeddings" : `layer ${layer}`;
}

/** @param {Layer} layer */
export function nameOf({ model, layer }) {
  return `${modelName(model)}, ${layerTitle(layer)}`;
}

const titles = page.grids.map(makeTitle);
const keys = titles.map((title, at) => `${page.grids[at].setting} ${title}`);
const sameKey = counted(keys); // grids that only their numbers of rows tell apart
const gridTitles = new Map(page.grids.map((grid, at) =>
  [grid, sameKey.get(keys[at]) === 1 ? titles[at] : `${titles[at]}, ${rowsOf(grid)}`]));

/** @param {Grid} grid */
export function titleOf(grid) {
  return gridTitles.get(grid) ?? "";
}

/** @param {Grid} grid */
export function rowsOf({ n }) {
  return `n = ${inWords(n)}`;
}

/**
 * What the drop-downs say of a grid, for pictures and for paper.
 * @param {Grid} grid
 */
export function captionOf(grid) {
  const { task, kind, name } = settingOf(grid);
  return [task, kind, name, rowsOf(grid)].filter(Boolean).join(", ");
}

/**
 * The two models of a grid, over all their seeds.
 * @param {Grid} grid
 */
export function pairOf(grid) {
  const [part] = grid.parts ?? [{ x: page.axes[grid.x][0][0], y: page.axes[grid.y][0][0] }];
  if (isJoint(grid)) return `${grid.comparison}: all of ${page.axes[grid.x].length} models`;
  const pair = `${page.models[part.x].stem} × ${page.models[part.y].stem}`;
  /** @type {Record<string, string>} */
  const words = { [WITHIN]: " (each with itself)", [BETWEEN]: " (between seeds)",
    [SAME]: " (same seed)", [OTHER]: " (other seeds)" };
  const alone = page.models[part.x].seed === null && part.x === part.y;
  return pair + (alone ? "" : words[relationOf(part)] ?? "");
}

/** @param {Grid} grid */
export function seedCount({ parts = [] }) {
  const { length } = parts, pairs = parts[0] && relationOf(parts[0]);
  return `${length} ${pairs === BETWEEN || pairs === OTHER ? "pair" : "seed"}${length === 1 ? "" : "s"}`;
}

/** @param {Grid} grid */
function makeTitle(grid) {
  if (grid.parts) return `${pairOf(grid)}, ${seedCount(grid)}`;
  if (isJoint(grid)) return `${grid.comparison}: all of ${page.axes[grid.x].length} models`;
  const [x, y] = [grid.x, grid.y].map((axis) => modelName(page.axes[axis][0][0]));
  const pair = `${x} × ${y}`, plain = [`${x}-${y}`, `${x}–${y}`].includes(grid.comparison);
  return plain ? `${grid.comparison}` : `${grid.comparison}: ${pair}`;
}

/**
 * What a link names a grid by.
 * @param {Grid} grid
 */
export function keyOf(grid) {
  const { task, name, kind } = settingOf(grid);
  return joined([task, kind, name, titleOf(grid), grid.n]);
}

/**
 * The layers of a side in the order in which they are shown.
 * @param {Grid} grid
 * @param {Grid} guide the grid whose clustering is followed, if the sides are of one length
 * @param {0 | 1} side 0 is down, 1 is across
 * @param {string} order
 * @param {Set<number>} hidden models
 * @returns {Layer[]}
 */
export function ordered(grid, guide, side, order, hidden) {
  const layers = layersOf(side === 0 ? grid.x : grid.y);
  let found = layers;
  if (order === "clustered") {
    const [own, other] = [grid, guide].map(({ clustered, heights = [] }) =>
      ({ leaves: clustered[side] ?? clustered[0], joins: heights[side] ?? heights[0] }));
    const { leaves, joins } = own.leaves.length === other.leaves.length ? other : own;
    found = leaves.map((at, place) => ({ ...layers[at], ...(joins && { join: joins[place] }) }));
  } else if (order === "layer") {
    found = [...layers].sort((a, b) => a.layer - b.layer || a.at - b.at);
  }
  /** @type {Layer[]} */
  const shown = [];
  for (const layer of found) {
    const last = shown.at(-1);
    if (!hidden.has(layer.model)) shown.push(layer);
    else if (last?.join !== undefined) last.join = Math.max(last.join, layer.join ?? 0);
  }
  return shown.length ? shown : found;
}

/**
 * The name of a place of a difference: of both its sides, where they differ.
 * @param {string} own
 * @param {string} [other]
 */
export function withOther(own, other = own) {
  return own === other ? own : `${own} − ${other}`;
}

/**
 * Runs of layers that belong together: of one model, or of one number.
 * @param {Layer[]} layers
 * @param {string} order
 * @param {Layer[]} [minus] the layers at their places in the grid that is taken away
 * @returns {Group[]}
 */
export function groupsOf(layers, order, minus) {
  if (order === "clustered" && layers.some(({ model }) => model !== layers[0].model)) return [];
  const own = order === "layer"
    ? (/** @type {Layer} */ { layer }) => layerName(layer)
    : (/** @type {Layer} */ { model }) => modelName(model);
  const what = (/** @type {Layer} */ layer, /** @type {number} */ place) => withOther(own(layer), minus && own(minus[place]));
  /** @type {Group[]} */
  const groups = [];
  layers.forEach((layer, place) => {
    const name = what(layer, place), last = groups.at(-1);
    if (last?.name === name) last.end = place + 1;
    else groups.push({ start: place, end: place + 1, name });
  });
  return groups;
}
