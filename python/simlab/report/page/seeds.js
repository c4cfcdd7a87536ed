/**
 * Grids that differ in seeds alone, as one grid: mean, SD, lowest, highest and number in every cell.
 * The pairs of models within joint grids count as grids.
 */
import { cutOut, lengthOf, page, settingOf, storedPlanes } from "./data.js";

/**
 * @typedef {import("./data.js").Grid} Grid
 * @typedef {{grid: Grid, x: number, y: number, rows: [number, number],
 *   columns: [number, number]}} Part A pair of models: the first and behind the last row and column
 */

export const MODELS = page.models.length; // that the results have

/** Pairs of seeds of one model: what two models have to do with each other. */
export const WITHIN = "within", BETWEEN = "between seeds", SAME = "same seed", OTHER = "other seeds";

/**
 * The pairs of models of a grid, each once.
 * @param {Grid} grid
 * @returns {Part[]}
 */
export function partsOf(grid) {
  const [down, across] = [grid.x, grid.y].map((axis) => {
    let start = 0;
    return page.axes[axis].map(([model, layers]) => {
      start += layers.length;
      return { model, place: /** @type {[number, number]} */ ([start - layers.length, start]) };
    });
  });
  const half = grid.x === grid.y && grid.symmetric;
  return down.flatMap((row, r) => across.slice(half ? r : 0).map((column) =>
    ({ grid, x: row.model, y: column.model, rows: row.place, columns: column.place })));
}

/** @param {Pick<Part, "x" | "y">} pair */
export function relationOf({ x, y }) {
  const [one, other] = [page.models[x], page.models[y]];
  if (x === y) return WITHIN;
  if (one.family === other.family) return BETWEEN;
  if (one.seed === null || other.seed === null) return "";
  return one.seed === other.seed ? SAME : OTHER;
}

/** @param {Part} part */
function groupOf({ grid, x, y, rows, columns }) {
  const layersOf = (/** @type {number} */ axis, /** @type {number} */ model) =>
    page.axes[axis].find(([number]) => number === model)?.[1];
  return JSON.stringify([grid.setting, grid.n, grid.comparison.replace(/\d+/g, "#"),
    page.models[x].family, page.models[y].family, relationOf({ x, y }),
    layersOf(grid.x, x), layersOf(grid.y, y), rows[1] - rows[0], columns[1] - columns[0]]);
}

/** A model that stands for all its seeds; a model of one seed stands for itself. */
const families = new Map();
page.models.forEach(({ family }, model) => {
  families.set(family, [...(families.get(family) ?? []), model]);
});
for (const [family, models] of families) {
  if (models.length > 1) {
    page.models.push({ ...page.models[models[0]], name: page.models[models[0]].stem, seed: null });
  }
  families.set(family, models.length > 1 ? page.models.length - 1 : models[0]);
}

/**
 * The models of the results that a model stands for: its seeds, or itself.
 * @param {number} model
 */
export function membersOf(model) {
  return page.models.flatMap((_, at) => (at < MODELS && (model === at || model >= MODELS && families.get(page.models[at].family) === model) ? [at] : []));
}

const NOT_CLUSTERED = { symmetric: false, start: 0, heights: undefined, blocks: undefined, tests: undefined };

/** @type {Map<string, number>} */
const axes = new Map();

/**
 * The axis of the layers of a family.
 * @param {number} model
 * @param {number[]} layers
 */
function axisOf(model, layers) {
  const key = JSON.stringify([model, layers]), known = axes.get(key);
  if (known !== undefined) return known;
  page.axes.push([[model, layers]]);
  axes.set(key, page.axes.length - 1);
  return page.axes.length - 1;
}

/**
 * @param {Part[]} parts
 * @param {(model: number) => number} [of] the model that stands for one of the parts
 * @returns {Grid}
 */
function made(parts, of = (model) => families.get(page.models[model].family)) {
  const [{ grid, x, y, rows, columns }] = parts;
  const sides = [[grid.x, x], [grid.y, y]].map(([axis, model]) => {
    const [, layers] = page.axes[axis].find(([number]) => number === model) ?? [model, []];
    return axisOf(of(model), layers);
  });
  /** @type {Map<string, number>} How many seeds have a block. */
  const blocks = new Map();
  const whole = new Set(parts.filter((part) => part.x === part.y));
  for (const part of whole) {
    for (const [model, layers] of part.grid.blocks ?? []) {
      const key = JSON.stringify(layers);
      if (model === part.x) blocks.set(key, (blocks.get(key) ?? 0) + 1);
    }
  }
  const model = page.axes[sides[0]][0][0];
  return { ...grid, ...NOT_CLUSTERED, x: sides[0], y: sides[1], parts,
    blocks: [...blocks].map(([layers, count]) => [model, JSON.parse(layers), parts.length > 1 ? count : undefined]),
    tests: [...whole].flatMap(({ grid: { tests = [] }, x: own }) => tests.filter(([of]) => of === own)),
    clustered: [rows, columns].map(([from, to]) => Array.from({ length: to - from }, (_, at) => at)) };
}

/**
 * @param {Part[]} parts
 * @param {(part: Part) => string} key
 */
function grouped(parts, key) {
  /** @type {Map<string, Part[]>} */
  const found = new Map();
  for (const part of parts) {
    const name = key(part), known = found.get(name);
    if (known) known.push(part);
    else found.set(name, [part]);
  }
  return [...found.values()];
}

/**
 * Parts are seeds of one grid if no pair of models is twice among them.
 * @param {Part[]} parts
 */
function areSeeds(parts) {
  return new Set(parts.map(({ x, y }) => `${x} ${y}`)).size === parts.length;
}

// Two comparisons whose names differ in a number alone may hold the same pairs of models.
const groups = grouped(page.grids.flatMap(partsOf), groupOf)
  .flatMap((parts) => (areSeeds(parts) ? [parts] : grouped(parts, ({ grid }) => grid.comparison)))
  .flatMap((parts) => (areSeeds(parts) ? [parts] : parts.map((part) => [part])));

/** Every pair of models that the results compare, over all its seeds: also where it has one. */
export const PAIRS = groups.map((parts) => (parts.length > 1 ? made(parts)
  : page.axes[parts[0].grid.x].length === 1 && page.axes[parts[0].grid.y].length === 1
    ? parts[0].grid : made(parts)));

/**
 * A joint grid with each model once, over its seeds. A seed is compared with itself, and with the same seed of
 * another model; with other seeds only where there are no others.
 * @param {Grid} grid
 * @returns {Grid[]}
 */
function collapsed(grid) {
  const axis = page.axes[grid.x], family = (/** @type {number} */ model) => families.get(page.models[model].family);
  const side = new Map(axis.map(([model, layers]) => [family(model), layers]));
  if (grid.x !== grid.y || side.size < 2 || side.size === axis.length
    || axis.some(([model, layers]) => String(layers) !== String(side.get(family(model))))) return [];
  const isFar = (/** @type {Grid} */ { parts }) => Number(!!parts && [BETWEEN, OTHER].includes(relationOf(parts[0])));
  const tiles = PAIRS.filter(({ parts }) => parts?.some((part) => part.grid === grid))
    .sort((a, b) => isFar(b) - isFar(a)); // a later one is written over an earlier one
  const x = page.axes.push([...side]) - 1;
  return [{ ...grid, ...NOT_CLUSTERED, x, y: x, tiles, parts: tiles[tiles.length - 1].parts,
    clustered: [Array.from({ length: lengthOf(x) }, (_, at) => at)] }];
}

/** @type {Map<Part, Grid>} A seed of two models, or of one, that stands in a joint grid, as a grid of its own. */
const alone = new Map(groups.filter((parts) => parts.length > 1 && ![BETWEEN, OTHER].includes(relationOf(parts[0]))).flat()
  .filter(({ grid: { x, y } }) => page.axes[x].length > 1 || page.axes[y].length > 1)
  .map((part) => [part, { ...made([part], (model) => model), parts: undefined, from: part,
    symmetric: part.grid.symmetric && part.x === part.y }]));

/**
 * The grid that shows a part alone, if there is one, else the one that it stands in.
 * @param {Part} part
 */
export function gridOfPart(part) {
  return alone.get(part) ?? part.grid;
}

page.grids = [...PAIRS.filter(({ parts }) => parts && parts.length > 1), ...page.grids.flatMap(collapsed), ...page.grids,
  ...alone.values()];

/**
 * A stored plane of every part of a grid of seeds.
 * @param {Grid} grid
 * @param {string} [name]
 * @returns {Promise<Float32Array[]>}
 */
export async function seedsOf(grid, name = "value") {
  const found = [];
  /** @type {[Grid | null, Float32Array]} */
  let last = [null, new Float32Array()];
  for (const part of grid.parts ?? partsOf(grid)) {
    if (last[0] !== part.grid) last = [part.grid, (await storedPlanes(part.grid, name))[name]];
    found.push(cutOut(part, last[1]));
  }
  return found;
}

/**
 * @param {Float32Array[]} seeds
 * @returns {import("./data.js").Planes} NaN where too few seeds have a value
 */
export function aggregate(seeds) {
  const size = seeds[0].length, plane = () => new Float32Array(size).fill(NaN);
  const found = { mean: plane(), sd: plane(), lowest: plane(), highest: plane(),
    number: new Float32Array(size) };
  for (let at = 0; at < size; at++) {
    const values = seeds.map((seed) => seed[at]).filter((value) => !isNaN(value));
    const count = values.length;
    found.number[at] = count;
    if (!count) continue;
    const mean = values.reduce((sum, value) => sum + value, 0) / count;
    found.mean[at] = mean;
    found.lowest[at] = Math.min(...values);
    found.highest[at] = Math.max(...values);
    if (count > 1) {
      found.sd[at] = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1));
    }
  }
  return found;
}

export const LEVEL = 0.05001; // a p-value up to .05 is significant, and is stored in steps

/**
 * @param {Grid} grid of seeds
 * @returns {Promise<import("./data.js").Planes>}
 */
async function planesOver(grid) {
  if (grid.tiles) return planesTogether(grid);
  const planes = aggregate(await seedsOf(grid));
  if (!settingOf(grid).planes.includes("pvalue")) return planes;
  const tested = await seedsOf(grid, "pvalue");
  if (!tested.some((of) => of.some(Number.isFinite))) return planes;
  return { ...planes, significant: planes.number.map((number, at) => {
    const known = tested.map((of) => of[at]).filter(Number.isFinite);
    return number && known.length === number ? known.filter((p) => p <= LEVEL).length : NaN; // all or none
  }) };
}

/**
 * @param {Grid} grid of tiles
 * @param {(tile: Grid) => Promise<import("./data.js").Planes>} of
 */
async function planesTogether({ x, tiles = [] }, of = planesOf) {
  const stride = lengthOf(x), all = await Promise.all(tiles.map(of));
  const found = Object.fromEntries(all.flatMap(Object.keys).map((name) => [name, new Float32Array(stride ** 2).fill(NaN)]));
  let start = 0;
  const starts = new Map(page.axes[x].map(([model, { length }]) => [model, (start += length) - length]));
  tiles.forEach((tile, number) => {
    const planes = all[number], columns = lengthOf(tile.y), isHalf = tile.parts?.[0].grid.symmetric;
    const [row, column] = [tile.x, tile.y].map((axis) => starts.get(page.axes[axis][0][0]) ?? 0);
    for (const [name, whole] of Object.entries(found)) {
      for (let at = 0; at < lengthOf(tile.x) * columns; at++) {
        const value = planes[name]?.[at] ?? NaN; // a tile without tests hides the tests below it
        const r = row + Math.floor(at / columns), c = column + at % columns;
        whole[r * stride + c] = value;
        if (isHalf) whole[c * stride + r] = value;
      }
    }
  });
  return found;
}

/**
 * The values of a mean by seed: a difference of two means is that of the seeds. Pairs of seeds share seeds, and count
 * as as many values as there are seeds: those of the jackknife, which leaves out all pairs of a seed.
 * @param {Grid} grid of seeds
 * @returns {Promise<import("./data.js").Planes>}
 */
export async function bySeed(grid) {
  if (grid.tiles) return planesTogether(grid, bySeed);
  const values = await seedsOf(grid), names = (grid.parts ?? []).map(({ x, y }) =>
    [...new Set([x, y].map((model) => page.models[model].seed).filter((seed) => seed !== null))]);
  const seeds = [...new Set(names.flat())];
  if (names.every(({ length }) => length < 2)) {
    return Object.fromEntries(values.flatMap((plane, at) => names[at].map((seed) => [String(seed), plane])));
  }
  const mean = aggregate(values).mean;
  return Object.fromEntries(seeds.map((seed) => {
    const rest = values.filter((_, at) => !names[at].includes(seed));
    const without = rest.length ? aggregate(rest).mean : new Float32Array(mean.length).fill(NaN);
    return [String(seed), mean.map((value, at) => seeds.length * value - (seeds.length - 1) * without[at])];
  }));
}

/** @type {Map<Grid, Promise<import("./data.js").Planes>>} */
const aggregated = new Map();

/**
 * The planes of a grid, of seeds or of results.
 * @param {Grid} grid
 * @returns {Promise<import("./data.js").Planes>}
 */
export function planesOf(grid) {
  if (!grid.parts) return storedPlanes(grid);
  const known = aggregated.get(grid) ?? planesOver(grid).catch((error) => {
    aggregated.delete(grid); // the next look tries again
    throw error;
  });
  aggregated.set(grid, known);
  return known;
}

/**
 * The values of a grid, or their mean over seeds.
 * @param {Grid} grid
 */
export async function valuesOf(grid) {
  return grid.parts ? (await planesOf(grid)).mean : (await storedPlanes(grid, "value")).value;
}
