/** Copies of what is shown: CSV on the clipboard, pictures as files. */
import { layerName, modelName, nameOf } from "./axes.js";
import { inkOn, stepOf } from "./colours.js";
import { brief, csv, short } from "./csv.js";
import { fromAbove } from "./paint.js";

/** @typedef {import("./heatmap.js").Shown} Shown */

const CELL = 24; // units of a drawn cell
const MOST_SIDE = 2000; // units of a large grid
const MOST_DRAWN = 4096; // cells that are drawn one by one
const MOST_LETTERS = 120; // of the name of a file

/**
 * @param {string} name
 * @param {Blob} content
 */
export function save(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  const end = name.slice(name.lastIndexOf("."));
  link.download = name.slice(0, -end.length).replace(/[^\p{L}\p{N}.]+/gu, "-")
    .replace(/^[-.]+/, "").slice(0, MOST_LETTERS).replace(/[-.]+$/, "") + end;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/**
 * Copy text; where the browser forbids that, save it as a file.
 * @param {string} text
 * @param {string} name
 * @returns {Promise<string>} what was done
 */
export async function copy(text, name) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied.";
  } catch {
    save(name, new Blob([text], { type: "text/csv" }));
    return "The browser does not let this page copy; saved as a file.";
  }
}

/**
 * Every cell that is shown, with all that the results know of it.
 * @param {Shown} shown
 * @param {import("./data.js").Planes} planes
 * @param {Shown | null} other the grid that was taken away
 */
export function gridCsv({ down, across, stride }, planes, other) {
  const names = Object.keys(planes);
  const layers = ["label_x", "layer_x", "label_y", "layer_y"];
  const placeOf = (/** @type {Pick<Shown, "down" | "across">} */ sides,
    /** @type {number} */ r, /** @type {number} */ c) =>
    [sides.down[r], sides.across[c]].flatMap(({ model, layer }) => [modelName(model), layer]);
  const rows = down.flatMap((row, r) => across.map((column, c) => [
    ...placeOf({ down, across }, r, c), ...(other ? placeOf(other, r, c) : []),
    ...names.map((name) => {
      const value = planes[name][row.at * stride + column.at];
      return Number.isNaN(value) ? "" : value;
    }),
  ]));
  return csv([...layers, ...(other ? layers.map((name) => `minus_${name}`) : []), ...names], rows);
}

/** @param {string} text */
function escaped(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\0-\x08\v\f\x0e-\x1f\ufffe\uffff]/g, "\ufffd").replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/**
 * A whole grid on white, with its title and its colours.
 * @param {import("./heatmap.js").Heatmap} map
 * @returns {Blob} SVG
 */
export function gridSvg(map) {
  const { groups, frames } = map;
  const { down, across, range, table, order, title } = /** @type {Shown} */ (map.shown);
  const side = Math.max(down.length, across.length);
  const cell = Math.min(Math.max(Math.floor(MOST_SIDE / side), 2), CELL);
  const width = across.length * cell, height = down.length * cell, left = 170, top = 34;
  const whole = [Math.max(left + 300, left + width + 10, title.length * 7), top + height + 80];
  const rgb = (/** @type {number} */ step) => `rgb(${table.slice(step * 3, step * 3 + 3)})`;
  /** @type {string[]} */
  const out = [];
  const write = (/** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ text,
    anchor = "start", more = "") =>
    out.push(`<text x="${x}" y="${y}" text-anchor="${anchor}" ${more}>${escaped(text)}</text>`);
  const box = (/** @type {number[]} */ [x, y, w, h], /** @type {string} */ more, inside = "") =>
    out.push(`<rect x="${x}" y="${y}" width="${w}" height="${h}" ${more}>${inside}</rect>`);
  box([0, 0, ...whole], 'fill="#fff"');
  write(2, 18, title, "start", 'font-size="13"');
  if (down.length * across.length > MOST_DRAWN) {
    box([left, top, width, height], 'fill="#ccc"');
    out.push(`<image x="${left}" y="${top}" width="${width}" height="${height}" ` +
      `preserveAspectRatio="none" image-rendering="pixelated" href="${map.cells.toDataURL()}"/>`);
  } else {
    down.forEach((row, r) => across.forEach((column, c) => {
      const value = map.valueAt(r, c), step = stepOf(value, range), text = brief(value);
      const missing = Number.isNaN(value), x = left + c * cell, y = top + map.above(r) * cell;
      box([x, y, cell, cell], `fill="${missing ? "#ccc" : rgb(step)}"`,
        `<title>${escaped(`${nameOf(row)} × ${nameOf(column)}: ${short(value)}`)}</title>`);
      if (missing || text.length > 5) return;
      write(x + cell / 2, y + cell / 2 + 3, text, "middle",
        `font-size="9" fill="${inkOn(table, step)}"`);
    }));
  }
  for (const { rows, columns } of frames) {
    box([left + columns[0] * cell, top + map.above(rows[1] - 1) * cell,
      (columns[1] - columns[0]) * cell, (rows[1] - rows[0]) * cell],
    'fill="none" stroke="#d55e00" stroke-width="2.5"');
  }
  if (order !== "layer" && cell > 11) {
    down.forEach(({ layer, model }, r) => write(left - 5, top + (map.above(r) + 0.5) * cell + 4,
      `${groups.down.length ? "" : `${modelName(model)} `}${layerName(layer)}`, "end"));
    across.forEach(({ layer }, c) =>
      write(left + (c + 0.5) * cell, top + height + 14, layerName(layer), "middle"));
  }
  for (const { start, end, name } of fromAbove(groups.down, down.length)) {
    write(2, top + ((start + end) / 2) * cell + 4, name);
  }
  for (const { start, end, name } of groups.across) {
    write(left + ((start + end) / 2) * cell, top + height + 32, name, "middle");
  }
  for (let step = 0; step < 256; step += 5) box([left + step, whole[1] - 24, 5, 12], `fill="${rgb(step)}"`);
  write(left - 5, whole[1] - 14, short(range[0], 2), "end");
  write(left + 265, whole[1] - 14, short(range[1], 2));
  return new Blob([`<svg xmlns="http://www.w3.org/2000/svg" width="${whole[0]}" ` +
    `height="${whole[1]}" viewBox="0 0 ${whole.join(" ")}" font-family="sans-serif" ` +
    `font-size="11">${out.join("")}</svg>`], { type: "image/svg+xml" });
}

/**
 * A picture in SVG as PNG, at twice its size.
 * @param {Blob} picture
 * @returns {Promise<Blob>}
 */
export async function toPng(picture) {
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
    return await blobOf(canvas);
  } finally {
    URL.revokeObjectURL(address);
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {Promise<Blob>}
 */
function blobOf(canvas) {
  return new Promise((resolve, reject) => canvas.toBlob((blob) =>
    blob ? resolve(blob) : reject(new Error("the browser could not make a PNG"))));
}
