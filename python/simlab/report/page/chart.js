/** Curves with their legend and values, and buttons that copy and save them. */
import { csv, short } from "./csv.js";
import { folded, make, tableOf } from "./make.js";
import { drawCurves, legendOf } from "./profile.js";
import { fileButtons } from "./save.js";

const OVER_SEEDS = ["mean", "lowest", "highest"], MEASURED = [...OVER_SEEDS, "SD"]; // columns of values

/**
 * @param {string} name of the figure and of its files
 * @param {import("./profile.js").Curve[]} curves
 * @param {string} below the label of the layers or steps
 * @param {string[]} columns
 * @param {(string | number | null)[][]} rows
 */
export function chartOf(name, curves, below, columns = ["models", "layer", ...OVER_SEEDS, "seeds"],
  rows = curves.flatMap(({ stem, points }) => points.filter(({ seeds }) => seeds)
    .map(({ layer, mean, low, high, seeds }) => [stem, layer, mean, low, high, seeds]))) {
  const drawing = drawCurves(curves, name, below);
  return make("div", "curve", drawing, legendOf(curves), make("div", "bar",
    ...fileButtons(() => name, () => pictureOf(drawing), () => csv(columns, rows))),
  folded("Values", () => [tableOf(columns, rows.map((row) => row.map((value, at) =>
    (MEASURED.includes(columns[at]) ? short(value === null ? NaN : Number(value)) : value))), `Values: ${name}`)]));
}

/**
 * A drawing as a file, in its own size.
 * @param {SVGElement} drawing
 */
function pictureOf(drawing) {
  const alone = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  const { width, height } = alone.viewBox.baseVal;
  alone.setAttribute("width", String(width));
  alone.setAttribute("height", String(height));
  return new Blob([new XMLSerializer().serializeToString(alone)], { type: "image/svg+xml" });
}
