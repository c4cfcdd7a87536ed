/** The picture of a grid: cells, values, dots, lines between groups, frames, the cursor, labels. */
import { layerName, modelName, withOther } from "./axes.js";
import { LINES, inkOn, lookup, rgb, stepOf } from "./colours.js";
import { brief, clamp } from "./csv.js";
import { page } from "./data.js";
import { HATCH, LETTER, cut, widthOf } from "./picture.js";

/**
 * @typedef {import("./heatmap.js").Heatmap} Heatmap
 * @typedef {import("./heatmap.js").Shown} Shown
 * @typedef {import("./picture.js").Mark} Mark
 * @typedef {import("./axes.js").Layer} Layer
 * @typedef {{rows: number[], columns: number[]}} Frame around cells: the first, and behind the last
 * @typedef {Pick<Heatmap, "margin" | "size" | "cell" | "left" | "top" | "groups" | "frames" | "cells"
 *   | "valueAt" | "above" | "cursor" | "strips" | "tree">} Sight of a grid: a heatmap, or how a file shows one
 */

export const FRAME = "#d55e00";
export const TREE = 44; // pixels
const STRIP = 7; // pixels
const MOST_NAMES = 12; // of models in the legend
const LEAST_FOR_VALUES = 27; // pixels of a cell that a value fits into
const LEAST_FOR_DOTS = 7; // pixels of a cell

/**
 * @param {Sight} map
 * @param {Shown} shown
 * @param {string} ink of labels
 * @returns {Mark[]}
 */
export function gridMarks(map, shown, ink) {
  const { margin, size, cell, left, top } = map;
  const cells = [{ rect: [0, 0, size.width, size.height], fill: HATCH },
    { image: map.cells, from: [left / cell, top / cell, size.width / cell, size.height / cell],
      rect: [0, 0, size.width, size.height], smooth: cell < 1 },
    ...(cell >= LEAST_FOR_DOTS ? cellMarks(map, shown) : []),
    ...groupMarks(map), ...frameMarks(map), ...cursorMarks(map)];
  return [{ within: [margin.left, margin.top, size.width, size.height], marks: cells },
    ...(/** @type {const} */ ([0, 1])).flatMap((side) =>
      [...labelMarks(map, shown, side, ink), stripMarks(map, shown, side), treeMarks(map, shown, side, ink)])];
}

/**
 * Colours that say the model, the seed and the number of each layer of a joint grid.
 * @param {import("./axes.js").Layer[][]} sides
 */
export function stripsOf(sides) {
  const layers = sides.flat(), none = sides.every(([first, ...rest]) => rest.every(({ model }) => model === first.model));
  if (none) return { width: 0, words: "", names: [], of: [] };
  const known = layers.map(({ model }) => page.models[model]), table = lookup("viridis");
  const stems = [...new Set(known.map(({ stem }) => stem))], seeds = [...new Set(known.map(({ seed }) => seed))];
  const most = Math.max(1, ...layers.map(({ layer }) => layer));
  const colour = (/** @type {string} */ stem) => LINES[stems.indexOf(stem) % LINES.length];
  const hue = (/** @type {number | null} */ seed) => (seed === null ? HATCH : `hsl(${seeds.indexOf(seed) * 137} 60% 55%)`);
  const of = [(/** @type {Layer} */ { model }) => colour(page.models[model].stem),
    ...(seeds.length > 1 ? [(/** @type {Layer} */ { model }) => hue(page.models[model].seed)] : []),
    (/** @type {Layer} */ { layer }) => rgb(table, Math.round(layer / most * 255))];
  return { width: STRIP * of.length, of, names: stems.slice(0, MOST_NAMES).map((stem) => [stem, colour(stem)]),
    words: `Strips, from outside: model, ${of.length > 2 ? "seed, " : ""}layer (the darkest is the lowest)${
      stems.length > MOST_NAMES ? `; the first ${MOST_NAMES} of ${stems.length} models:` : ""}` };
}

/**
 * @param {Sight} map
 * @param {Shown} shown
 * @param {0 | 1} side
 * @returns {Mark}
 */
function stripMarks({ margin, size, cell, left, top, strips }, shown, side) {
  const layers = side ? shown.across : [...shown.down].reverse(), away = side ? left : top, { width, of } = strips;
  /** @type {Mark[]} */
  const marks = [];
  of.forEach((colour, strip) => {
    for (let from = 0, to; from < layers.length; from = to) {
      const fill = colour(layers[from]);
      for (to = from + 1; to < layers.length && colour(layers[to]) === fill;) to++;
      const [at, long] = [from * cell - away, (to - from) * cell];
      marks.push({ fill, rect: side ? [at, width - (strip + 1) * STRIP + 1, long, STRIP - 1]
        : [strip * STRIP, at, STRIP - 1, long] });
    }
  });
  return { marks, within: side ? [margin.left, margin.top + size.height, size.width, width]
    : [margin.left - width, margin.top, width, size.height] };
}

/**
 * The tree of a clustering: branches join the farther from the cells the less alike they are.
 * @param {Sight} map
 * @param {Shown} shown
 * @param {0 | 1} side
 * @param {string} stroke
 * @returns {Mark}
 */
function treeMarks({ margin, size, cell, left, top, tree }, { down, across }, side, stroke) {
  const layers = side ? across : down;
  /** @type {Mark[]} */
  const marks = [];
  const at = (/** @type {number} */ place, /** @type {number} */ high) => (side
    ? [place * cell - left, tree - high * (tree - 2)] : [high * (tree - 2), (layers.length - place) * cell - top]);
  /** @type {(from: number, to: number) => number[]} The middle and the height of a run of layers. */
  const grow = (from, to) => {
    if (to - from < 2) return [from + 0.5, 0];
    let most = from;
    for (let place = from; place < to - 1; place++) if (join(place) > join(most)) most = place;
    const one = grow(from, most + 1), other = grow(most + 1, to), high = join(most);
    marks.push({ line: [...at(one[0], one[1]), ...at(one[0], high), ...at(other[0], high), ...at(other[0], other[1])],
      stroke, width: 1 });
    return [(one[0] + other[0]) / 2, high];
  };
  const join = (/** @type {number} */ place) => layers[place].join ?? 0;
  if (tree) grow(0, layers.length);
  return { marks, within: side ? [margin.left, margin.top - tree, size.width, tree]
    : [margin.left + size.width, margin.top, tree, size.height] };
}

/**
 * The rows and columns that can be seen; rows count from the upper edge.
 * @param {Sight} map
 * @param {Shown} shown
 */
function windowOf({ cell, size, top, left }, { down, across }) {
  return {
    rows: [Math.floor(top / cell), Math.min(Math.ceil((top + size.height) / cell), down.length)],
    columns: [Math.floor(left / cell),
      Math.min(Math.ceil((left + size.width) / cell), across.length)],
  };
}

/**
 * Values, and dots at cells that are not significant.
 * @param {Sight} map
 * @param {Shown} shown
 */
function cellMarks(map, shown) {
  const { range, table, dots, stride, down, across } = shown, { cell } = map;
  const { rows, columns } = windowOf(map, shown);
  /** @type {Mark[]} */
  const found = [];
  for (let row = rows[0]; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++) {
      const value = map.valueAt(map.above(row), column);
      if (isNaN(value)) continue;
      const text = brief(value, shown.digits), fill = inkOn(table, stepOf(value, range));
      const x = column * cell - map.left, y = row * cell - map.top;
      if (dots?.[down[map.above(row)].at * stride + across[column].at]) {
        const radius = Math.min(cell / 8, 3), edge = Math.max(radius + 1, cell / 7);
        found.push({ dot: [x + cell - edge, y + edge, radius], fill });
      }
      if (cell < LEAST_FOR_VALUES || (text.length > 4 && widthOf(text) > cell - 2)) continue;
      found.push({ text, x: x + cell / 2, y: y + cell / 2, anchor: "middle", fill });
    }
  }
  return found;
}

/** @param {Sight} map */
function groupMarks({ cell, left, top, size, groups, above }) {
  const line = (/** @type {number} */ room) => (room < 12 ? 0 : room < 40 ? 1 : 2), fill = "#fff";
  return [
    ...groups.across.slice(1).map(({ start, end }) => {
      const width = line((end - start) * cell);
      return { rect: [start * cell - left - width / 2, 0, width, size.height], fill };
    }),
    ...groups.down.slice(1).map(({ start, end }) => {
      const width = line((end - start) * cell);
      return { rect: [0, (above(start) + 1) * cell - top - width / 2, size.width, width], fill };
    })];
}

/**
 * Frames around blocks, which are of neighbours in a model.
 * @param {Shown} shown
 * @returns {Frame[]}
 */
export function framesOf({ down, across, outlines, order }) {
  if (order !== "model") return [];
  return outlines.flatMap(([model, layers]) => {
    const places = [down, across].map((side) => layers.map((layer) =>
      side.findIndex((other) => other.model === model && other.layer === layer)));
    if (places.flat().some((place) => place < 0)) return [];
    const [rows, columns] = places.map((of) => [Math.min(...of), Math.max(...of) + 1]);
    return [{ rows, columns }];
  });
}

/** @param {Sight} map */
function frameMarks({ cell, left, top, frames, above }) {
  const rects = frames.map(({ rows, columns }) => [columns[0] * cell - left,
    above(rows[1] - 1) * cell - top, (columns[1] - columns[0]) * cell, (rows[1] - rows[0]) * cell]);
  // Dark below the colour: the frame is seen on bright cells and on dark ones.
  return rects.flatMap((rect) => [{ rect, stroke: "#000", width: 4.5 }, { rect, stroke: FRAME, width: 2.5 }]);
}

/** @param {Sight} map */
function cursorMarks({ cursor, cell, left, top, above }) {
  if (!cursor) return [];
  const side = Math.max(cell, 5);
  const rect = [(cursor[1] + 0.5) * cell - left - side / 2, (above(cursor[0]) + 0.5) * cell - top - side / 2,
    side, side];
  return [{ rect, stroke: "#000", width: 4 }, { rect, stroke: "#fff", width: 2 }];
}

/**
 * Names of models (or numbers of layers) beside their cells, cut or thinned until they fit.
 * @param {Sight} map
 * @param {Shown} shown
 * @param {0 | 1} side
 * @param {string} fill
 */
function labelMarks(map, shown, side, fill) {
  const { cell, margin } = map;
  const layers = side === 0 ? [...shown.down].reverse() : shown.across;
  const away = side === 0 ? map.top : map.left, room = side === 0 ? map.size.height : map.size.width;
  const start = side === 0 ? margin.top : margin.left;
  const numbers = cell >= LETTER + 1 && shown.order !== "layer";
  const groups = side === 0 ? fromAbove(map.groups.down, layers.length) : map.groups.across;
  const below = margin.top + map.size.height + map.strips.width, edge = margin.left - map.strips.width;
  /** @type {Mark[]} */
  const found = [];
  if (numbers) {
    const last = Math.min(layers.length, Math.ceil((away + room) / cell));
    for (let place = Math.floor(away / cell); place < last; place++) {
      const at = (place + 0.5) * cell - away, text = layerName(layers[place].layer);
      if (at < 0 || at > room) continue;
      if (side === 0) {
        found.push({ text, x: edge - 4, y: start + at, anchor: "end", fill });
        if (groups.length) continue;
        const taken = shown.minus?.[0][layers.length - 1 - place];
        const name = withOther(modelName(layers[place].model), taken && modelName(taken.model));
        found.push({ text: cut(name, edge - 34), x: edge - 32,
          y: start + at, anchor: "end", fill });
      } else if (text !== "emb" || cell > 24) {
        found.push({ text, x: start + at, y: below + 9, anchor: "middle", fill });
      }
    }
  }
  let free = -Infinity;
  for (const { start: from, end, name } of groups) {
    const low = Math.max(from * cell - away, 0), high = Math.min(end * cell - away, room);
    if (high - low < 2) continue;
    const middle = (low + high) / 2;
    if (side === 0) {
      if (middle - LETTER / 2 < free) continue;
      free = middle + LETTER / 2 + 2;
      found.push({ text: cut(name, edge - (numbers ? 32 : 6)), x: 0, y: start + middle, fill });
    } else {
      const text = cut(name, high - low < 40 ? 60 : high - low - 6), half = widthOf(text) / 2;
      const at = clamp(middle, half - start, room - half + 4);
      if (at - half < free) continue;
      free = at + half + 6;
      found.push({ text, x: start + at, y: below + (numbers ? 27 : 11), anchor: "middle", fill });
    }
  }
  return found;
}

/**
 * Groups of rows in the order in which they stand below each other.
 * @param {import("./axes.js").Group[]} groups
 * @param {number} count of all rows
 * @returns {import("./axes.js").Group[]}
 */
function fromAbove(groups, count) {
  return groups.map(({ start, end, name }) =>
    ({ start: count - end, end: count - start, name })).reverse();
}

/**
 * Make the picture that has one pixel for each cell, layer 0 at the bottom left.
 * @param {HTMLCanvasElement} canvas
 * @param {Pick<Shown, "down" | "across" | "range" | "table" | "values" | "stride">} shown
 */
export function paintCells(canvas, { down, across, range, table, values, stride }) {
  canvas.width = across.length;
  canvas.height = down.length;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(across.length, down.length);
  let at = 0;
  for (const { at: row } of [...down].reverse()) {
    for (const { at: column } of across) {
      const value = values[row * stride + column];
      if (!isNaN(value)) {
        const step = stepOf(value, range) * 3;
        for (let part = 0; part < 3; part++) image.data[at + part] = table[step + part];
        image.data[at + 3] = 255;
      }
      at += 4;
    }
  }
  context.putImageData(image, 0, 0);
}
