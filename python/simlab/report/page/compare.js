/** Two grids beside each other: what differs, their difference, and a scatter of their cells. */
import { captionOf, rowsOf, titleOf } from "./axes.js";
import { extent } from "./colours.js";
import { inWords, short } from "./csv.js";
import { settingOf } from "./data.js";
import { make } from "./make.js";
import { paintMarks, svgOf, widthOf } from "./picture.js";
import { fileButtons } from "./save.js";
import { bySeed, gridOfPart } from "./seeds.js";

/**
 * @typedef {import("./heatmap.js").Shown} Shown
 * @typedef {import("./panel.js").Panel} Panel
 * @typedef {import("./data.js").Planes} Planes
 */

const ERRORS = 2; // standard errors that a difference of means is more than
const MOST_DOTS = 4096;
const SIDE = 320, LEFT_OF = 52, BELOW = 40; // pixels of the scatter

/**
 * The names of two grids by what differs between them.
 * @param {import("./data.js").Grid} one
 * @param {import("./data.js").Grid} other
 */
export function namesOf(one, other) {
  const parts = [one, other].map((grid) => {
    const { task, kind, name } = settingOf(grid);
    return [titleOf(grid), task, kind, name, rowsOf(grid)];
  });
  const places = parts[0].flatMap((part, at) => (part === parts[1][at] ? [] : [at]));
  return parts.map((of) => places.map((at) => of[at]).join(", ") || of[0]);
}

/**
 * The cells of A and of B that stand at one place.
 * @param {Shown} one
 * @param {Shown} other
 * @param {(at: number, of: number, row: number, column: number) => void} act
 */
function together(one, other, act) {
  one.down.forEach((down, row) => one.across.forEach((across, column) =>
    act(down.at * one.stride + across.at,
      other.down[row].at * other.stride + other.across[column].at, row, column)));
}

/** @param {number[]} values */
function meanAndSquares(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { mean, squares: values.reduce((sum, value) => sum + (value - mean) ** 2, 0) };
}

/**
 * How uncertain a difference of two means over seeds is. Where both have the same seeds, of the differences of each
 * seed; else of the pooled seeds.
 * @param {number[]} one values of A by seed, NaN where a seed has none
 * @param {number[]} other
 * @param {boolean} paired
 * @returns {{deviation: number, error: number}}
 */
function uncertainty(one, other, paired) {
  const known = [one, other].map((values) => values.filter((value) => !isNaN(value))), [n, m] = known.map(({ length }) => length);
  if (n < 2 || m < 2) return { deviation: NaN, error: NaN };
  if (paired) {
    const each = one.map((value, seed) => value - other[seed]).filter((value) => !isNaN(value));
    const deviation = n === m && each.length === n ? Math.sqrt(meanAndSquares(each).squares / (n - 1)) : NaN;
    return { deviation, error: deviation / Math.sqrt(n) };
  }
  const deviation = Math.sqrt((meanAndSquares(known[0]).squares + meanAndSquares(known[1]).squares) / (n + m - 2));
  return { deviation, error: deviation * Math.sqrt(1 / n + 1 / m) };
}

/**
 * A minus B; of two means over seeds, also the standard deviation and the standard error.
 * @param {Panel} a
 * @param {Panel} b
 */
export async function differenceOf(a, b) {
  const one = /** @type {Shown} */ (a.map.shown), other = /** @type {Shown} */ (b.map.shown);
  const plane = () => new Float32Array(one.values.length).fill(NaN);
  const value = plane(), deviation = plane(), error = plane(), dots = new Uint8Array(value.length);
  const { mean, number } = b.planes, isOfB = other.values === mean && b.grid.parts?.some((part) => gridOfPart(part) === a.grid);
  const means = one.values === a.planes.mean && other.values === b.planes.mean;
  const [p, q] = means ? await Promise.all([a.grid, b.grid].map(bySeed)) : [{}, {}];
  const [seeds, others] = [p, q].map(Object.keys), paired = seeds.length === others.length && seeds.every((seed) => q[seed]);
  together(one, other, (at, of) => {
    const own = one.values[at], rest = number?.[of] - 1;
    // A seed is compared with the mean of the others: the mean of all holds a share of it.
    value[at] = own - (isOfB ? (mean[of] * (rest + 1) - own) / (rest || NaN) : other.values[of]);
    if (!means) return;
    const found = uncertainty(seeds.map((seed) => p[seed][at]), others.map((seed) => q[seed][of]), paired);
    deviation[at] = found.deviation;
    error[at] = found.error;
    dots[at] = Number(Math.abs(value[at]) <= ERRORS * found.error);
  });
  const [low, high] = extent(value), most = Math.max(-low, high) || 1;
  const half = Math.max(...[one, other].map(({ range }) => Math.abs(range[1] - range[0]))) / 2;
  const how = paired ? `standard errors of ${seeds.length} paired seeds`
    : `standard errors pooled over ${seeds.length} and ${others.length} seeds, which are no pairs`;
  return { planes: /** @type {Planes} */ (means ? { value, [paired ? "paired" : "pooled"]: deviation, error } : { value }),
    dots, most, half, title: namesOf(a.grid, b.grid).join(isOfB ? " − the others of " : " − "), caption: [`A: ${captionOf(a.grid)}`,
      `B${isOfB ? " without A" : ""}: ${captionOf(b.grid)}`,
      ...(seeds.length > 1 && others.length > 1 ? [how] : [])].join("; ") };
}

/**
 * Ranks from 0; equal values have their mean rank.
 * @param {number[]} values
 */
function ranksOf(values) {
  const order = values.map((_, at) => at).sort((i, j) => values[i] - values[j]);
  const ranks = new Float64Array(values.length);
  for (let from = 0, to; from < order.length; from = to) {
    for (to = from; to < order.length && values[order[to]] === values[order[from]];) to++;
    for (let at = from; at < to; at++) ranks[order[at]] = (from + to - 1) / 2;
  }
  return ranks;
}

/**
 * Spearman's correlation; NaN where one side is constant.
 * @param {number[]} x
 * @param {number[]} y
 */
function spearman(x, y) {
  const [r, s] = [ranksOf(x), ranksOf(y)], mean = (x.length - 1) / 2;
  let rs = 0, rr = 0, ss = 0;
  r.forEach((rank, at) => {
    rs += (rank - mean) * (s[at] - mean);
    rr += (rank - mean) ** 2;
    ss += (s[at] - mean) ** 2;
  });
  return rs / Math.sqrt(rr * ss);
}

/** The cells of A against those of B. */
export class Scatter {
  constructor() {
    this.title = make("h2");
    this.canvas = make("canvas", { role: "img" });
    /** @type {{row: number, column: number, x: number, y: number}[]} */
    this.points = [];
    this.names = ["", ""];
    this.box = make("section", { class: "wide", "aria-label": "Scatter" }, this.title, this.canvas,
      make("div", "bar",
        ...fileButtons(() => this.names.join(" and "), () => svgOf(this.picture("#000")))));
  }

  /**
   * @param {Panel} a
   * @param {Panel} b
   */
  show(a, b) {
    const one = /** @type {Shown} */ (a.map.shown), other = /** @type {Shown} */ (b.map.shown);
    this.points = [];
    const half = [a, b].every(({ grid }) => grid.x === grid.y && (grid.symmetric || grid.parts));
    together(one, other, (at, of, row, column) => {
      const [down, across] = [one.down[row], one.across[column]];
      const same = down.model === across.model && down.layer === across.layer;
      if (half && (same || row < column)) return; // both halves are one, and its own layer is equal
      const x = one.values[at], y = other.values[of];
      if (Number.isFinite(x) && Number.isFinite(y)) this.points.push({ row, column, x, y });
    });
    this.names = namesOf(a.grid, b.grid).map((name, at) => `${"AB"[at]}: ${name}`);
    const rho = spearman(this.points.map(({ x }) => x), this.points.map(({ y }) => y));
    this.title.textContent = `Spearman’s ρ = ${short(rho)} over ${inWords(this.points.length)} cells`;
    this.canvas.setAttribute("aria-label", `Scatter of ${this.names.join(" and ")}: ${this.title.textContent}`);
    this.draw(a.map.cursor);
  }

  /** @param {[number, number] | null} cursor of the grids */
  draw(cursor) {
    const style = getComputedStyle(this.box), ink = style.getPropertyValue("--text");
    const { marks, width, height } = this.picture(ink, cursor), ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    this.canvas.style.width = `${width}px`;
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    context.scale(ratio, ratio);
    paintMarks(context, marks, "#888 #eee");
  }

  /**
   * @param {string} ink
   * @param {[number, number] | null} [cursor]
   * @returns {import("./picture.js").Picture}
   */
  picture(ink, cursor = null) {
    const { points, names } = this, every = Math.ceil(points.length / MOST_DOTS) || 1;
    const [left, right] = extent(Float32Array.from(points, ({ x }) => x));
    const [bottom, top] = extent(Float32Array.from(points, ({ y }) => y));
    const x = (/** @type {number} */ value) => LEFT_OF + ((value - left) / (right - left || 1)) * SIDE;
    const y = (/** @type {number} */ value) => 26 + SIDE - ((value - bottom) / (top - bottom || 1)) * SIDE;
    const found = cursor && points.find(({ row, column }) => row === cursor[0] && column === cursor[1]);
    const fill = "#0072b280", end = /** @type {const} */ ("end"), low = 26 + SIDE;
    return { width: Math.max(LEFT_OF + SIDE + 30, ...names.map((name) => widthOf(name) + LEFT_OF)), height: low + BELOW,
      marks: [
        { text: names[1], x: 2, y: 9, fill: ink }, { text: names[0], x: LEFT_OF, y: low + 30, fill: ink },
        { line: [LEFT_OF, 20, LEFT_OF, low + 6, LEFT_OF + SIDE + 6, low + 6], stroke: ink, width: 1 },
        ...[left, right].map((value) => ({ text: short(value, 2), x: x(value), y: low + 15, fill: ink,
          anchor: /** @type {const} */ ("middle") })),
        ...[bottom, top].map((value) => ({ text: short(value, 2), x: LEFT_OF - 5, y: y(value), anchor: end, fill: ink })),
        ...points.filter((_, at) => at % every === 0).map((point) => ({ dot: [x(point.x), y(point.y), 3], fill })),
        ...(found ? [{ dot: [x(found.x), y(found.y), 5], fill: "#d55e00", stroke: ink }] : [])] };
  }
}
