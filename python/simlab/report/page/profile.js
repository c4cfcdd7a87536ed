/** The profile of a layer against every other model, and how curves of layers and steps are drawn. */
import { layerName, layersOf, modelName } from "./axes.js";
import { LINES } from "./colours.js";
import { inWords, short } from "./csv.js";
import { isStored, lengthOf, page, storedPlanes } from "./data.js";
import { make } from "./make.js";
import { widthOf } from "./picture.js";
import { membersOf } from "./seeds.js";

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
const OWN = -2, QUIET = "#777"; // of the model whose layer is open
const WIDTH = 460, HEIGHT = 250;
const MARGIN = { left: 40, right: 8, top: 8, bottom: 38 };

/**
 * @typedef {Map<number, Map<number, number>>} Profile value of each layer of each model
 * @typedef {{stem: string, models: number, points: {layer: number, mean: number, low: number, sd?: number,
 *   high: number, seeds: number}[], lines?: number[][], names?: string[], look?: number}} Curve `lines`: values of each seed,
 *   `names`: their models; `look`: the number of its colour, which it has on every figure; its place if there is none
 * @typedef {Curve["points"][0]} Point
 */

/**
 * The grids of a setting that a model has a side of.
 * @param {import("./data.js").Grid} first the one whose values count where several have some
 * @param {number} model
 */
function gridsWith(first, model) {
  return (/** @type {const} */ (["x", "y"])).flatMap((side) => page.grids.filter((grid) => isStored(grid)
    && grid.setting === first.setting && page.axes[grid[side]].some(([number]) => number === model))
    .map((grid) => ({ grid, side }))).sort((a, b) => Number(b.grid === first) - Number(a.grid === first));
}

/**
 * The similarity of a layer to every layer of every model, from all grids of a setting. Of a model that stands for
 * seeds, the mean over them; each with itself is then a model of its own.
 * @param {import("./data.js").Grid} first
 * @param {number} model
 * @param {number} layer
 * @returns {Promise<Profile>}
 */
export async function profileOf(first, model, layer) {
  const members = membersOf(model), all = await Promise.all(members.map((member) => profileOfOne(first, member, layer)));
  /** @type {Map<number, Map<number, number[]>>} */
  const found = new Map();
  all.forEach((profile, at) => profile.forEach((values, other) => {
    const key = other === members[at] ? model : other, of = found.get(key) ?? new Map();
    values.forEach((value, own) => of.set(own, [...of.get(own) ?? [], value]));
    found.set(key, of);
  }));
  return new Map([...found].map(([other, values]) => [other, new Map([...values].map(([own, several]) => [own, meanOf(several).mean]))]));
}

/**
 * @param {import("./data.js").Grid} first
 * @param {number} model
 * @param {number} layer
 * @returns {Promise<Profile>}
 */
async function profileOfOne(first, model, layer) {
  /** @type {Profile} */
  const found = new Map();
  for (const { grid, side } of gridsWith(first, model)) {
    const place = layersOf(grid[side]).find((at) => at.model === model && at.layer === layer);
    if (!place) continue;
    const { value } = await storedPlanes(grid, "value"), columns = lengthOf(grid.y);
    for (const at of layersOf(side === "x" ? grid.y : grid.x)) {
      const of = found.get(at.model) ?? new Map();
      if (of.has(at.layer)) continue;
      of.set(at.layer, value[side === "x" ? place.at * columns + at.at
        : at.at * columns + place.at]);
      found.set(at.model, of);
    }
  }
  return found;
}

/** @param {number[]} all of which those that are NaN do not count */
export function meanOf(all) {
  const values = all.filter((value) => !isNaN(value)), count = values.length, mean = values.reduce((sum, value) => sum + value, 0) / count;
  const sd = count > 1 ? Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1)) : NaN;
  return { values, mean, sd };
}

/**
 * Curves of the models, the mean over the seeds of one model.
 * @param {Profile} profile
 * @param {number} own
 * @returns {Curve[]}
 */
export function curvesOf(profile, own) {
  /** @type {Map<string, number[]>} */
  const members = new Map();
  for (const model of profile.keys()) {
    const stem = model === own ? `${modelName(model)} itself` : page.models[model].stem;
    const known = members.get(stem);
    if (known) known.push(model);
    else members.set(stem, [model]);
  }
  return [...members].map(([of, models]) => {
    const others = page.models[own]?.stem === of ? "the other " : "";
    const stem = models.length > 1 ? `${of} (mean and range of ${others}${models.length} seeds)`
      : models[0] === own ? of : modelName(models[0]);
    const layers = new Set(models.flatMap((model) => [...(profile.get(model)?.keys() ?? [])]));
    const points = [...layers].sort((a, b) => a - b).map((layer) => {
      const { values, mean, sd } = meanOf(models.map((model) => profile.get(model)?.get(layer) ?? NaN));
      return { layer, mean, sd, low: Math.min(...values), high: Math.max(...values), seeds: values.length };
    });
    return { stem, models: models.length, points, look: models[0] === own ? OWN : page.models[models[0]].family };
  });
}

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 */
export function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/**
 * Equal steps that cover a range, four or fewer where its ends are steps, and their digits.
 * @param {number} bottom
 * @param {number} top
 */
function ticksOf(bottom, top) {
  const rough = (top - bottom) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 2.5, 5].find((factor) => factor * power >= rough * (1 - 1e-9)) ?? 10);
  const first = Math.floor(bottom / step + 1e-9), last = Math.ceil(top / step - 1e-9);
  let digits = 2;
  while (Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
  return { digits, ticks: Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step) };
}

/**
 * @param {Curve[]} curves
 * @param {string} label
 * @param {string} below the label of the layers, or "step" for steps
 * @returns {{drawing: SVGElement, places: number[], x: (place: number) => number, top: number, bottom: number}}
 *   and where the places along it stand in the drawing
 */
export function drawCurves(curves, label, below) {
  const points = curves.flatMap((curve) => curve.points.filter(({ seeds }) => seeds));
  const last = Math.max(1, ...points.map(({ layer }) => layer));
  const seeds = curves.flatMap(({ lines }) => (lines ?? []).flat()).filter((value) => !isNaN(value));
  const bottom = Math.min(0, ...points.map((point) => point.low), ...seeds);
  const top = Math.max(0, ...points.map((point) => point.high), ...seeds, bottom + 1e-9);
  const { ticks, digits } = ticksOf(bottom, top), low = ticks[0], high = ticks[ticks.length - 1];
  const places = [...new Set(points.map(({ layer }) => layer))].sort((a, b) => a - b);
  const isStep = below === "step", least = places.find((place) => place > 0) ?? 1;
  // Steps that grow by powers stand apart by their logarithm, which has a place for step 0.
  const along = (/** @type {number} */ place) => (isStep && last >= 100 * least ? Math.log1p(place / least) : place);
  const x = (/** @type {number} */ layer) =>
    MARGIN.left + (along(layer) / along(last)) * (WIDTH - MARGIN.left - MARGIN.right);
  const y = (/** @type {number} */ value) =>
    HEIGHT - MARGIN.bottom -
    ((value - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const drawing = svg("svg", { xmlns: SVG, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": label, "font-family": "sans-serif", "font-size": 11 });
  for (const value of ticks) {
    drawing.append(
      svg("line", { class: "rule", stroke: value ? "#bbb" : "#777", x1: MARGIN.left, x2: WIDTH - MARGIN.right,
        y1: y(value), y2: y(value) }),
      svg("text", { x: MARGIN.left - 5, y: y(value) + 4, "text-anchor": "end" }, short(value, digits)));
  }
  let free = -Infinity;
  for (const place of places) {
    const text = isStep ? inWords(place) : layerName(place), half = widthOf(text) / 2 + 5;
    if (x(place) - half < free) continue;
    free = x(place) + half;
    drawing.append(svg("text", { x: Math.min(x(place), WIDTH - half), y: HEIGHT - MARGIN.bottom + 19, "text-anchor": "middle" }, text));
  }
  drawing.append(svg("text", { x: (MARGIN.left + WIDTH) / 2, y: HEIGHT - 3,
    "text-anchor": "middle" }, below));
  const looks = looksOf(curves);
  curves.forEach((curve, place) => {
    const { colour, dash } = looks[place];
    for (const [seed, line] of (curve.models > 1 ? curve.lines ?? [] : []).entries()) {
      const places = curve.points.flatMap(({ layer }, at) =>
        (isNaN(line[at]) ? [] : [`${x(layer)} ${y(line[at])}`]));
      const thin = drawing.appendChild(svg("path", { d: `M${places.join("L")}`, fill: "none", stroke: colour,
        "stroke-width": 0.6, "stroke-opacity": 0.5, class: "seed" }));
      if (curve.names) thin.append(svg("title", {}, curve.names[seed]));
    }
    for (const run of runsOf(curve.points)) {
      const path = (/** @type {(point: Point) => number} */ of) =>
        run.map((point) => `${x(point.layer)} ${y(of(point))}`);
      if (curve.models > 1) {
        const band = [...path(({ high: top }) => top), ...path(({ low: bottom }) => bottom).reverse()];
        drawing.append(svg("path", { d: `M${band.join("L")}Z`, fill: colour, "fill-opacity": 0.2 }));
      }
      drawing.append(svg("path", { d: `M${path(({ mean }) => mean).join("L")}`, fill: "none",
        stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }));
      if (run.length === 1) {
        drawing.append(svg("circle", { cx: x(run[0].layer), cy: y(run[0].mean), r: 3, fill: colour }));
      }
    }
  });
  return { drawing, places, x, top: MARGIN.top, bottom: HEIGHT - MARGIN.bottom };
}

/**
 * The points between layers that are undefined.
 * @param {Point[]} points
 */
function runsOf(points) {
  /** @type {Point[][]} */
  const runs = [[]];
  for (const point of points) {
    if (point.seeds) runs[runs.length - 1].push(point);
    else runs.push([]);
  }
  return runs.filter((run) => run.length);
}

/**
 * The colours and dashes of curves: their own, unless two would look alike.
 * @param {Curve[]} curves
 */
export function looksOf(curves) {
  const most = LINES.length * DASHES.length;
  const looks = curves.map(({ look = -1 }) => (look < 0 ? look : look % most));
  const isOwn = looks.every((look) => look !== -1) && new Set(looks).size === looks.length;
  return curves.map((_, place) => (isOwn ? looks[place] : place)).map((look) => (look === OWN ? { colour: QUIET, dash: "" } : {
    colour: LINES[look % LINES.length],
    dash: DASHES[Math.floor(look / LINES.length) % DASHES.length],
  }));
}

/** @param {Curve[]} curves */
export function legendOf(curves) {
  const looks = looksOf(curves);
  return make("ul", "legend", ...curves.map(({ stem }, place) => {
    const { colour, dash } = looks[place];
    const sample = svg("svg", { width: 26, height: 10, "aria-hidden": "true" });
    sample.append(svg("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: colour, "stroke-width": 2,
      "stroke-dasharray": dash }));
    return make("li", {}, sample, stem);
  }));
}
