/** Copies of what is shown: CSV on the clipboard, pictures as files. */
import { modelName, nameOf } from "./axes.js";
import { rgb, stepOf } from "./colours.js";
import { clamp, csv, short } from "./csv.js";
import { page } from "./data.js";
import { gridMarks } from "./paint.js";
import { button } from "./make.js";
import { widthOf } from "./picture.js";

/** @typedef {import("./heatmap.js").Shown} Shown */

const CELL = 28; // units of a drawn cell
const LEFT = 170, MOST_LEFT = 480; // units of the names of rows
const MOST_SIDE = 2000; // units of a large grid
const MOST_DRAWN = 4096; // cells that are drawn one by one
const MOST_COPIED = 5e6; // letters
const MOST_LETTERS = 120; // of the name of a file

/**
 * @param {string} name
 * @param {Blob} content
 */
export function save(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  const end = name.slice(name.lastIndexOf("."));
  link.download = name.slice(0, -end.length).replace(/(?<=\d),(?=\d{3})/g, "").replace(/[^\p{L}\p{N}.]+/gu, "-")
    .replace(/^[-.]+/, "").slice(0, MOST_LETTERS).replace(/[-.]+$/, "") + end;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/**
 * Copy a table; where it is too long, or the browser forbids that, save it as a file.
 * @param {string[]} parts of its text
 * @param {string} name
 * @returns {Promise<string>} what was done
 */
export async function copy(parts, name) {
  const isLong = parts.reduce((sum, { length }) => sum + length, 0) > MOST_COPIED;
  try {
    if (!isLong) {
      await navigator.clipboard.writeText(parts.join(""));
      return "Copied.";
    }
  } catch {
    // saved below
  }
  save(name, new Blob(parts, { type: "text/csv" }));
  return `${isLong ? "Too long to copy" : "The browser does not let this page copy"}; saved as a file.`;
}

/**
 * Every cell that is shown, with all that the results know of it, and of what it is.
 * @param {Shown} shown
 * @param {import("./data.js").Planes} planes
 * @param {import("./data.js").Grid} grid
 * @param {{shown: Shown, grid: import("./data.js").Grid} | null} other the grid that was taken away
 */
export function gridCsv({ down, across, stride }, planes, grid, other) {
  const names = Object.keys(planes), layers = ["label_x", "layer_x", "label_y", "layer_y"];
  const facts = [grid, ...(other ? [other.grid] : [])].flatMap((of) => {
    const { task, kind, name } = page.settings[of.setting];
    return [task, kind, name, of.n, of.parts?.length ?? 1];
  });
  const columns = ["task", "kind", "measure", "n", "seeds"];
  const minus = (/** @type {string[]} */ of) => (other ? of.map((name) => `minus_${name}`) : []);
  const placeOf = (/** @type {Pick<Shown, "down" | "across">} */ sides,
    /** @type {number} */ r, /** @type {number} */ c) =>
    [sides.down[r], sides.across[c]].flatMap(({ model, layer }) => [modelName(model), layer]);
  return csv([...layers, ...minus(layers), ...names, ...columns, ...minus(columns)], (function* () {
    for (const [r, row] of down.entries()) {
      for (const [c, column] of across.entries()) {
        yield [...placeOf({ down, across }, r, c), ...(other ? placeOf(other.shown, r, c) : []),
          ...names.map((name) => {
            const value = planes[name][row.at * stride + column.at];
            return isNaN(value) ? "" : shortest(value);
          }), ...facts];
      }
    }
  })());
}

/**
 * The number of the fewest digits that reads back as the same float32, as numpy prints it.
 * @param {number} value
 */
function shortest(value) {
  const rounded = [6, 7, 8].map((digits) => Number(value.toPrecision(digits)));
  return rounded.find((number) => Math.fround(number) === value) ?? Number(value.toPrecision(9));
}

/**
 * A whole grid, with its title and its colours, as the page shows it.
 * @param {import("./heatmap.js").Heatmap} map
 * @param {string} bar the title of the colours
 * @param {string[][]} notes below the colours: a text, and its colour
 * @returns {import("./picture.js").Picture}
 */
export function gridPicture(map, bar, notes) {
  const shown = /** @type {Shown} */ (map.shown), { down, across, range, table, title } = shown;
  const cell = clamp(Math.floor(MOST_SIDE / Math.max(down.length, across.length)), 2, CELL);
  const size = { width: across.length * cell, height: down.length * cell };
  const left = Math.min(Math.max(LEFT, ...down.map(({ model }) => Math.ceil(widthOf(modelName(model))) + 44)), MOST_LEFT) + map.strips.width;
  const margin = { left, top: 34 + map.tree, right: map.tree, bottom: 0 };
  const fill = "#000", low = margin.top + size.height + map.strips.width + 46;
  const words = [title, bar, ...notes.map(([text]) => text)].filter(Boolean);
  const width = Math.ceil(Math.max(left + 320, left + size.width + map.tree + 10, ...words.map((text) => widthOf(text) * 1.2 + 10)));
  const sight = { ...map, cell, size, margin, left: 0, top: 0, cursor: null, valueAt: map.valueAt.bind(map) };
  const marks = gridMarks(sight, shown, fill);
  if (down.length * across.length <= MOST_DRAWN && "within" in marks[0]) {
    // Cells as boxes with titles, in place of an image.
    marks[0].marks.splice(1, 1, ...down.flatMap((row, r) => across.flatMap((column, c) => {
      const value = map.valueAt(r, c), place = [c * cell, map.above(r) * cell, cell, cell];
      return [{ rect: place, fill: isNaN(value) ? "none" : rgb(table, stepOf(value, range)),
        title: `${nameOf(row)} × ${nameOf(column)}: ${short(value)}` }];
    })));
  }
  const colours = Array.from({ length: 128 }, (_, at) =>
    ({ rect: [left + at * 2, low + 16, 2, 12], fill: rgb(table, at * 2) }));
  return { width, height: low + 36 + notes.length * 16, marks: [
    { text: title, x: 2, y: 14, size: 13, fill }, ...marks,
    { text: bar, x: left, y: low + 6, fill }, ...colours,
    { text: short(range[0], 2), x: left - 5, y: low + 22, anchor: "end", fill },
    { text: short(range[1], 2), x: left + 262, y: low + 22, fill },
    ...notes.map(([text, colour = fill], at) => ({ text, x: 2, y: low + 42 + at * 16, fill: colour }))] };
}

/**
 * A picture in SVG as PNG, at twice its size.
 * @param {Blob} picture
 * @returns {Promise<Blob>}
 */
async function toPng(picture) {
  const address = URL.createObjectURL(picture);
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth * 2;
    canvas.height = image.naturalHeight * 2;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => canvas.toBlob((blob) =>
      blob ? resolve(blob) : reject(new Error("the browser could not make a PNG"))));
  } finally {
    URL.revokeObjectURL(address);
  }
}

/**
 * Buttons that save a picture, and copy the table behind it.
 * @param {() => string} name of the files
 * @param {() => Blob | Promise<Blob>} picture in SVG
 * @param {() => Promise<string[]>} [table]
 * @param {string} [note] what is to be known of the table
 */
export function fileButtons(name, picture, table, note = "") {
  return [
    ...(table ? [button("Copy as CSV", async () => (await copy(await table(), `${name()}.csv`)) + note)] : []),
    button("Save as PNG", async () => save(`${name()}.png`, await toPng(await picture()))),
    button("Save as SVG", async () => save(`${name()}.svg`, await picture()))];
}
