/** Curves with their legend and values, buttons that copy and save them, and the layer that is pointed at. */
import { csv, inWords, short } from "./csv.js";
import { layerTitle } from "./axes.js";
import { folded, make, tableOf } from "./make.js";
import { cut } from "./picture.js";
import { drawCurves, legendOf, looksOf, svg } from "./profile.js";
import { fileButtons } from "./save.js";

/** @typedef {import("./profile.js").Curve} Curve */

const LINE = 18; // units of the title and of a line of the legend in a file
const OVER_SEEDS = ["mean", "SD", "lowest", "highest"]; // columns of values

/**
 * @param {string} name of the figure and of its files
 * @param {Curve[]} curves
 * @param {string} below the label of the layers or steps
 * @param {string[]} columns
 * @param {(string | number | null)[][]} rows
 */
export function chartOf(name, curves, below, columns = ["models", "layer", ...OVER_SEEDS, "seeds"],
  rows = curves.flatMap(({ stem, points }) => points.filter(({ seeds }) => seeds)
    .map(({ layer, mean, sd = NaN, low, high, seeds }) => [stem, layer, mean, isNaN(sd) ? null : sd, low, high, seeds]))) {
  const drawn = drawCurves(curves, name, below), legend = legendOf(curves);
  const pointed = make("p", { class: "pointed" });
  pointAlong(drawn, pointed, legend, curves, below);
  return make("div", "curve", drawn.drawing, pointed, legend, make("div", "bar",
    ...fileButtons(() => name, () => pictureOf(drawn.drawing, name, curves), () => csv(columns, rows))),
  folded("Values", () => [tableOf(columns, rows.map((row) => row.map((value, at) =>
    (OVER_SEEDS.includes(columns[at]) ? short(value === null ? NaN : Number(value)) : value))), `Values: ${name}`)]));
}

/** @type {WeakMap<Element, (place: number) => void>} */
const markers = new WeakMap();
/** @type {Map<string, number>} The place that was marked last, by the label of the places. */
const marked = new Map();

/**
 * Mark a layer or a step in all figures that have such places.
 * @param {string} below the label of the places
 * @param {number} place
 */
export function mark(below, place) {
  if (marked.get(below) === place) return;
  marked.set(below, place);
  for (const drawing of document.querySelectorAll(".curve > svg")) {
    if (drawing.getAttribute("data-below") === below) markers.get(drawing)?.(place);
  }
}

/**
 * A line at the place that is pointed at, here or in a grid, and the values of the curves there.
 * @param {ReturnType<typeof drawCurves>} drawn
 * @param {HTMLElement} pointed says the place
 * @param {HTMLElement} legend says the values
 * @param {Curve[]} curves
 * @param {string} below
 */
function pointAlong({ drawing, places, x, top, bottom }, pointed, legend, curves, below) {
  const line = svg("line", { class: "mark", stroke: "#777", "stroke-width": 1, y1: top, y2: bottom });
  const values = [...legend.children].map((entry) => entry.appendChild(make("span", "value")));
  const show = (/** @type {number} */ place) => {
    if (!places.includes(place)) {
      line.remove();
      pointed.textContent = "";
      for (const value of values) value.replaceChildren();
      return;
    }
    for (const end of ["x1", "x2"]) line.setAttribute(end, String(x(place)));
    drawing.append(line);
    pointed.textContent = below === "step" ? `step ${inWords(place)}` : layerTitle(place);
    curves.forEach(({ points }, at) => {
      const point = points.find(({ layer, seeds }) => layer === place && seeds);
      values[at].replaceChildren(" ", make("b", {}, short(point?.mean)),
        point?.sd === undefined || isNaN(point.sd) ? "" : ` (SD ${short(point.sd)})`);
    });
  };
  drawing.setAttribute("data-below", below);
  markers.set(drawing, show);
  show(marked.get(below) ?? NaN);
  drawing.addEventListener("pointerleave", ({ pointerType }) => {
    if (pointerType === "mouse" && drawing.closest("#view-overview")) mark(below, NaN); // beside a grid, its cursor stays
  });
  drawing.addEventListener("pointermove", ({ clientX }) => {
    const { left, width } = drawing.getBoundingClientRect(), { viewBox } = /** @type {SVGSVGElement} */ (drawing);
    const at = (clientX - left) / width * viewBox.baseVal.width;
    const nearest = places.reduce((best, place) => (Math.abs(x(place) - at) < Math.abs(x(best) - at) ? place : best), places[0]);
    if (nearest === undefined || nearest === marked.get(below)) return;
    mark(below, nearest);
    drawing.dispatchEvent(new CustomEvent("mark", { bubbles: true, detail: { below, place: nearest } }));
  });
}

/**
 * A drawing as a file, with its title above and its legend below.
 * @param {SVGElement} drawing
 * @param {string} title
 * @param {Curve[]} curves
 */
function pictureOf(drawing, title, curves) {
  const alone = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  alone.querySelector(".mark")?.remove();
  const { width, height } = alone.viewBox.baseVal, whole = LINE * (1 + curves.length) + height;
  alone.append(svg("text", { x: 2, y: -6, "font-weight": "bold" }, cut(title, width)));
  looksOf(curves).forEach(({ colour, dash }, at) => {
    const y = height + LINE * (at + 0.5);
    alone.append(svg("line", { x1: 2, x2: 28, y1: y, y2: y, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }),
      svg("text", { x: 34, y: y + 4 }, cut(curves[at].stem, width - 34)));
  });
  alone.setAttribute("viewBox", `0 ${-LINE} ${width} ${whole}`);
  alone.setAttribute("width", String(width));
  alone.setAttribute("height", String(whole));
  return new Blob([new XMLSerializer().serializeToString(alone)], { type: "image/svg+xml" });
}
