/** What is drawn of a grid: cells, values, lines between groups, outlines, the cursor, labels. */
import { layerName, modelName } from "./axes.js";
import { inkOn, stepOf } from "./colours.js";
import { brief } from "./csv.js";

/**
 * @typedef {import("./heatmap.js").Heatmap} Heatmap
 * @typedef {import("./heatmap.js").Shown} Shown
 * @typedef {{rows: number[], columns: number[]}} Frame around cells: the first, and behind the last
 */

const LETTER = 11; // pixels of a label
const LEAST_FOR_VALUES = 27; // pixels of a cell that a value fits into

/**
 * @param {Heatmap} map
 * @param {Shown} shown
 */
export function paint(map, shown) {
  const { margin, size, cell } = map;
  const context = contextOf(map.canvas);
  const ratio = devicePixelRatio || 1;
  const style = getComputedStyle(map.place);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, margin.left + size.width + 4, margin.top + size.height + margin.bottom);
  context.save();
  context.translate(margin.left, margin.top);
  context.beginPath();
  context.rect(0, 0, size.width, size.height);
  context.clip();
  context.fillStyle = map.light ? "#ccc" : style.getPropertyValue("--missing");
  context.fillRect(0, 0, size.width, size.height);
  context.imageSmoothingEnabled = cell < 1;
  context.drawImage(map.cells, map.left / cell, map.top / cell, size.width / cell,
    size.height / cell, 0, 0, size.width, size.height);
  if (cell >= LEAST_FOR_VALUES) paintValues(context, map, shown);
  paintGroups(context, map);
  paintFrames(context, map);
  paintCursor(context, map);
  context.restore();
  context.fillStyle = map.light ? "#000" : style.getPropertyValue("--text");
  paintLabels(context, map, shown, 0);
  paintLabels(context, map, shown, 1);
}

/** @param {HTMLCanvasElement} canvas */
export function contextOf(canvas) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.font = `${LETTER}px system-ui, sans-serif`;
  return context;
}

/**
 * The rows and columns that can be seen; rows count from the upper edge.
 * @param {Heatmap} map
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
 * @param {CanvasRenderingContext2D} context
 * @param {Heatmap} map
 * @param {Shown} shown
 */
function paintValues(context, map, shown) {
  const { range, table } = shown;
  const { rows, columns } = windowOf(map, shown);
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let row = rows[0]; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++) {
      const value = map.valueAt(map.above(row), column);
      if (Number.isNaN(value)) continue;
      const text = brief(value);
      if (text.length > 4 && context.measureText(text).width > map.cell - 2) continue;
      context.fillStyle = inkOn(table, stepOf(value, range));
      context.fillText(text, (column + 0.5) * map.cell - map.left,
        (row + 0.5) * map.cell - map.top);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Heatmap} map
 */
function paintGroups(context, map) {
  const { cell, left, top, size, groups } = map;
  const count = map.above(-1);
  context.fillStyle = "#fff";
  const line = (/** @type {number} */ room) => (room < 5 ? 0 : room < 40 ? 1 : 2);
  for (const { start, end } of groups.across.slice(1)) {
    const width = line((end - start) * cell);
    context.fillRect(start * cell - left - width / 2, 0, width, size.height);
  }
  for (const { start, end } of groups.down.slice(1)) {
    const width = line((end - start) * cell);
    context.fillRect(0, (count - start) * cell - top - width / 2, size.width, width);
  }
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

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Heatmap} map
 */
function paintFrames(context, map) {
  const { cell, left, top, frames } = map;
  context.strokeStyle = "#d55e00";
  context.lineWidth = 2.5;
  for (const { rows, columns } of frames) {
    context.strokeRect(columns[0] * cell - left, map.above(rows[1] - 1) * cell - top,
      (columns[1] - columns[0]) * cell, (rows[1] - rows[0]) * cell);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Heatmap} map
 */
function paintCursor(context, map) {
  const { cursor, cell, left, top } = map;
  if (!cursor) return;
  const side = Math.max(cell, 5);
  const x = (cursor[1] + 0.5) * cell - left - side / 2;
  const y = (map.above(cursor[0]) + 0.5) * cell - top - side / 2;
  for (const [colour, width] of /** @type {[string, number][]} */ ([["#000", 4], ["#fff", 2]])) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(x, y, side, side);
  }
}

/**
 * Names of models (or numbers of layers) beside their cells, thinned until they fit.
 * @param {CanvasRenderingContext2D} context
 * @param {Heatmap} map
 * @param {Shown} shown
 * @param {0 | 1} side
 */
function paintLabels(context, map, shown, side) {
  const { cell, margin } = map;
  const layers = side === 0 ? [...shown.down].reverse() : shown.across;
  const away = side === 0 ? map.top : map.left;
  const room = side === 0 ? map.size.height : map.size.width;
  const start = side === 0 ? margin.top : margin.left;
  context.textBaseline = "middle";
  const numbers = cell >= LETTER + 1 && shown.order !== "layer";
  const groups = side === 0 ? fromAbove(map.groups.down, layers.length) : map.groups.across;
  const below = margin.top + map.size.height;
  if (numbers) {
    context.textAlign = side === 0 ? "right" : "center";
    const last = Math.min(layers.length, Math.ceil((away + room) / cell));
    for (let place = Math.floor(away / cell); place < last; place++) {
      const at = (place + 0.5) * cell - away, text = layerName(layers[place].layer);
      if (at < 0 || at > room) continue;
      if (side === 0) {
        context.fillText(text, margin.left - 4, start + at);
        if (groups.length) continue;
        const name = cut(context, modelName(layers[place].model), margin.left - 34);
        context.fillText(name, margin.left - 32, start + at);
      } else if (text !== "emb" || cell > 24) context.fillText(text, start + at, below + 9);
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
      context.textAlign = "left";
      context.fillText(cut(context, name, margin.left - (numbers ? 28 : 6)), 0, start + middle);
    } else {
      const text = cut(context, name, Math.max(high - low, 60));
      const half = context.measureText(text).width / 2;
      const at = Math.min(Math.max(middle, half - start), room - half + 4);
      if (at - half < free) continue;
      free = at + half + 8;
      context.textAlign = "center";
      context.fillText(text, start + at, below + (numbers ? 27 : 11));
    }
  }
}

/**
 * Groups of rows in the order in which they stand below each other.
 * @param {import("./axes.js").Group[]} groups
 * @param {number} count of all rows
 * @returns {import("./axes.js").Group[]}
 */
export function fromAbove(groups, count) {
  return groups.map(({ start, end, name }) =>
    ({ start: count - end, end: count - start, name })).reverse();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} name
 * @param {number} width
 */
function cut(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  let kept = Math.min(name.length, Math.ceil(width / 3));
  while (kept > 1 && context.measureText(`${name.slice(0, kept)}…`).width > width) kept--;
  return `${name.slice(0, kept)}…`;
}
