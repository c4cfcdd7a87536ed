/** The picture of a grid: cells, values, dots, lines between groups, frames, the cursor, labels. */
import { layerName, modelName } from "./axes.js";
import { inkOn, stepOf } from "./colours.js";
import { brief } from "./csv.js";
import { HATCH, LETTER, cut, widthOf } from "./picture.js";

/**
 * @typedef {import("./heatmap.js").Heatmap} Heatmap
 * @typedef {import("./heatmap.js").Shown} Shown
 * @typedef {import("./picture.js").Mark} Mark
 * @typedef {{rows: number[], columns: number[]}} Frame around cells: the first, and behind the last
 * @typedef {Pick<Heatmap, "margin" | "size" | "cell" | "left" | "top" | "groups" | "frames" | "cells"
 *   | "valueAt" | "above" | "cursor">} Sight of a grid: a heatmap, or how a file shows one
 */

export const FRAME = "#d55e00";
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
    ...labelMarks(map, shown, 0, ink), ...labelMarks(map, shown, 1, ink)];
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
      if (Number.isNaN(value)) continue;
      const text = brief(value), fill = inkOn(table, stepOf(value, range));
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
  const away = side === 0 ? map.top : map.left;
  const room = side === 0 ? map.size.height : map.size.width;
  const start = side === 0 ? margin.top : margin.left;
  const numbers = cell >= LETTER + 1 && shown.order !== "layer";
  const groups = side === 0 ? fromAbove(map.groups.down, layers.length) : map.groups.across;
  const below = margin.top + map.size.height;
  /** @type {Mark[]} */
  const found = [];
  if (numbers) {
    const last = Math.min(layers.length, Math.ceil((away + room) / cell));
    for (let place = Math.floor(away / cell); place < last; place++) {
      const at = (place + 0.5) * cell - away, text = layerName(layers[place].layer);
      if (at < 0 || at > room) continue;
      if (side === 0) {
        found.push({ text, x: margin.left - 4, y: start + at, anchor: "end", fill });
        if (groups.length) continue;
        found.push({ text: cut(modelName(layers[place].model), margin.left - 34), x: margin.left - 32,
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
      found.push({ text: cut(name, margin.left - (numbers ? 32 : 6)), x: 0, y: start + middle, fill });
    } else {
      const text = cut(name, high - low < 40 ? 60 : high - low - 6), half = widthOf(text) / 2;
      const at = Math.min(Math.max(middle, half - start), room - half + 4);
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
