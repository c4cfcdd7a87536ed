/** Copies of what is shown: CSV on the clipboard, pictures as files. */
import { groupsOf, layerName, modelName, nameOf } from "./axes.js";
import { inkOn, stepOf } from "./colours.js";
import { brief, csv, short } from "./csv.js";

const CELL = 24; // units of a drawn cell
const MOST_DRAWN = 4096; // cells that are drawn one by one

/**
 * @param {string} name
 * @param {Blob} content
 */
export function save(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^A-Za-z0-9.]+/g, "-");
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
 * @param {import("./heatmap.js").Shown} shown
 * @param {import("./data.js").Planes} planes
 */
export function gridCsv({ down, across, stride }, planes) {
  const names = Object.keys(planes);
  const rows = down.flatMap((row) => across.map((column) => [
    modelName(row.model), row.layer, modelName(column.model), column.layer,
    ...names.map((name) => {
      const value = planes[name][row.at * stride + column.at];
      return Number.isNaN(value) ? "" : value;
    }),
  ]));
  return csv(["model_x", "layer_x", "model_y", "layer_y", ...names], rows);
}

/** @param {string} text */
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}

/**
 * @param {import("./heatmap.js").Heatmap} map
 * @returns {string} the grid as SVG
 */
export function gridSvg(map) {
  const { down, across, range, table, order, title } =
    /** @type {import("./heatmap.js").Shown} */ (map.shown);
  const width = across.length * CELL, height = down.length * CELL, left = 170, top = 60;
  const out = [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${left + width + 10} ` +
    `${top + height + 10}" font-family="sans-serif" font-size="11"><title>${escaped(title)}</title>` +
    `<rect width="100%" height="100%" fill="#fff"/>`];
  if (down.length * across.length > MOST_DRAWN) {
    out.push(`<image x="${left}" y="${top}" width="${width}" height="${height}" ` +
      `preserveAspectRatio="none" image-rendering="pixelated" href="${map.cells.toDataURL()}"/>`);
  } else {
    down.forEach((row, r) => across.forEach((column, c) => {
      const value = map.valueAt(r, c), step = stepOf(value, range);
      const colour = Number.isNaN(value) ? "204,204,204" : table.slice(step * 3, step * 3 + 3);
      const x = left + c * CELL, y = top + r * CELL;
      out.push(`<rect x="${x}" y="${y}" width="${CELL}" height="${CELL}" fill="rgb(${colour})">` +
        `<title>${escaped(`${nameOf(row)} × ${nameOf(column)}: ${short(value)}`)}</title></rect>`);
      if (Number.isNaN(value)) return;
      out.push(`<text x="${x + CELL / 2}" y="${y + CELL / 2 + 3}" font-size="9" ` +
        `text-anchor="middle" fill="${inkOn(table, step)}">${brief(value)}</text>`);
    }));
  }
  const numbers = order === "model" && Math.max(down.length, across.length) <= 200;
  if (numbers) {
    down.forEach(({ layer }, r) => out.push(`<text x="${left - 5}" ` +
      `y="${top + (r + 0.5) * CELL + 4}" text-anchor="end">${layerName(layer)}</text>`));
    across.forEach(({ layer }, c) => out.push(`<text x="${left + (c + 0.5) * CELL}" ` +
      `y="${top - 6}" text-anchor="middle">${layerName(layer)}</text>`));
  }
  for (const { start, end, name } of groupsOf(down, order)) {
    out.push(`<text x="2" y="${top + ((start + end) / 2) * CELL + 4}">${escaped(name)}</text>`);
  }
  for (const { start, end, name } of groupsOf(across, order)) {
    out.push(`<text x="${left + ((start + end) / 2) * CELL}" y="${top - 26}" ` +
      `text-anchor="middle">${escaped(name)}</text>`);
  }
  return `${out.join("")}</svg>`;
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
export function blobOf(canvas) {
  return new Promise((resolve, reject) => canvas.toBlob((blob) =>
    blob ? resolve(blob) : reject(new Error("the browser could not make a PNG"))));
}
