/**
 * The data of the page: described by JSON, and compressed numbers that are unpacked when needed.
 *
 * @typedef {{name: string, seed: number | null, stem: string, family: number,
 *   base: string | null, stage: string | null, run: string, step: number | null}} Model Seeds of one
 *   model have one `stem` and `family`, and steps of one training one `run`, which is empty without steps.
 * @typedef {{task: string, kind: string, measure: string, name: string, range: [number, number],
 *   planes: string[], undefined: string, sources: string[],
 *   about: string, manual: string}} Setting `undefined`: why cells are hatched; `sources`: the results that
 *   it is from; `about` and `manual`: what the measure is, and its page in the documentation
 * @typedef {[number, number[], number?]} Block model, those of its layers that are a block, and in
 *   how many seeds they are
 * @typedef {{setting: number, comparison: string, n: number, x: number, y: number,
 *   symmetric: boolean, start: number, clustered: number[][], heights?: number[][], blocks?: Block[],
 *   tests?: [number, number][],
 *   resampling?: Record<string, number>, parts?: import("./seeds.js").Part[],
 *   tiles?: Grid[], from?: import("./seeds.js").Part}} Grid `tests`: models, and the p-values of their block
 *   scores; `heights` at which neighbours in `clustered` join; `parts`:
 *   the seeds that it is the mean of; `tiles`: grids that it is put together from; `from`: the pair of models of a
 *   joint grid that it is
 * @typedef {{name: string, title: string, picture: string, rows: string, count: number, width: number,
 *   shape: number, of: Record<string, unknown[]>}} View `title` without the task, empty if the name is one; `of`:
 *   tasks, kinds, measures, models and seeds
 * @typedef {{name: string, path: string, seconds: number, done: boolean,
 *   inputs: Record<string, string>}} Job
 * @typedef {{folder: string, kinds: Record<string, Record<string, number>>, error: string,
 *   failed: {title: string, error: string}[]}} Status of a sweep: jobs by kind and state
 * @typedef {[string, number, number, string, number | null, number | null, number | null, number,
 *   string]} Fact task, model, layer, what, value, low, high, n, and the kind and options of the value
 * @typedef {{task: string, kind: string, name: string, run: string, reference: string, end: number | null, n: number,
 *   range: [number, number], steps: number[], layers: number[], mean: (number | null)[][],
 *   sd: (number | null)[][], number: number[][], fact: string}} Training of each layer by step, over seeds;
 *   `end`: the step that all are compared with
 * @typedef {{title: string, sources: string[], models: Model[], axes: [number, number[]][][], settings: Setting[],
 *   grids: Grid[], facts: Fact[], baselines: [string, string, number, string, number][], trainings: Training[], views: View[], rows: number, tasks: string[], jobs: number,
 *   statuses: Status[], versions: Record<string, string>}} Page
 * @typedef {Record<string, Float32Array>} Planes
 */

/** @param {string} id */
export function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/** @type {Page} */
export const page = JSON.parse(element("data").textContent ?? "");

/**
 * The unpacked content of an element.
 * @param {string} id
 */
async function bytesOf(id) {
  const packed = atob(element(id).textContent ?? ""), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} id */
export async function textOf(id) {
  return new TextDecoder().decode(await bytesOf(id));
}

/**
 * Numbers whose bytes are split, the high bytes first.
 * @param {Uint8Array} bytes
 * @param {number} width
 */
function wholeNumbers(bytes, width) {
  const count = bytes.length / width, whole = new Uint8Array(bytes.length);
  for (let part = 0; part < width; part++) {
    const from = part * count, place = width - 1 - part;
    for (let i = 0; i < count; i++) whole[i * width + place] = bytes[from + i];
  }
  return whole.buffer;
}

/**
 * The stored numbers of a setting, all its grids end to end.
 * @param {number} index
 * @returns {Promise<Planes>}
 */
async function unpack(index) {
  const setting = page.settings[index];
  /** @type {Planes} */
  const planes = {};
  for (const name of setting.planes) {
    planes[name] = new Float32Array(wholeNumbers(await bytesOf(`plane-${index}-${name}`), 4));
  }
  return planes;
}

/** @type {Map<number, Promise<Planes>>} */
const unpacked = new Map();
const MOST_UNPACKED = 12;

/** @param {number} index */
function settingPlanes(index) {
  const known = unpacked.get(index) ?? unpack(index).catch((error) => {
    unpacked.delete(index); // the next one that asks tries again
    throw error;
  });
  unpacked.delete(index);
  unpacked.set(index, known); // the latest one is the last one to go
  if (unpacked.size > MOST_UNPACKED) unpacked.delete(unpacked.keys().next().value ?? -1);
  return known;
}

/** @param {Grid} grid */
export function settingOf({ setting }) {
  return page.settings[setting];
}

/**
 * Whether a grid is one of the results: neither a mean nor cut out of a joint grid.
 * @param {Grid} grid
 */
export function isStored({ parts, from }) {
  return !parts && !from;
}

/** @param {number} axis */
export function lengthOf(axis) {
  return page.axes[axis].reduce((sum, [, layers]) => sum + layers.length, 0);
}

/**
 * The values of a part of a grid, row by row.
 * @param {import("./seeds.js").Part} part
 * @param {Float32Array} value of the whole grid
 */
export function cutOut({ grid, rows, columns }, value) {
  const stride = lengthOf(grid.y), width = columns[1] - columns[0];
  const found = new Float32Array((rows[1] - rows[0]) * width);
  for (let row = rows[0]; row < rows[1]; row++) {
    const from = row * stride + columns[0];
    found.set(value.subarray(from, from + width), (row - rows[0]) * width);
  }
  return found;
}

/**
 * The planes of a grid, each a whole table, row by row.
 * @param {Grid} grid
 * @param {string} [only] the name of the one that is wanted
 * @returns {Promise<Planes>}
 */
export async function storedPlanes(grid, only) {
  const { from } = grid;
  if (from) {
    const whole = await storedPlanes(from.grid, only);
    return Object.fromEntries(Object.entries(whole).map(([name, plane]) => [name, cutOut(from, plane)]));
  }
  const stored = await settingPlanes(grid.setting), rows = lengthOf(grid.x), columns = lengthOf(grid.y);
  /** @type {Planes} */
  const planes = {};
  for (const [name, numbers] of Object.entries(stored)) {
    if (only && name !== only) continue;
    if (!grid.symmetric) {
      planes[name] = numbers.subarray(grid.start, grid.start + rows * columns);
      continue;
    }
    const whole = new Float32Array(rows * columns);
    let at = grid.start;
    for (let i = 0; i < rows; i++) {
      for (let j = i; j < columns; j++, at++) {
        whole[i * columns + j] = whole[j * columns + i] = numbers[at];
      }
    }
    planes[name] = whole;
  }
  return planes;
}
