/** The planes of a grid that "Show" lists: their names, their ranges, and the words of a readout. */
import { inWords, short } from "./csv.js";
import { page, settingOf } from "./data.js";
import { LEVEL, planesOf } from "./seeds.js";
import { joined } from "./state.js";

/**
 * @typedef {import("./data.js").Planes} Planes
 * @typedef {import("./data.js").Grid} Grid
 */

/** @type {Record<string, string>} */
export const PLANES = {
  mean: "mean over seeds", sd: "standard deviation over seeds", lowest: "lowest of the seeds",
  highest: "highest of the seeds", number: "number of seeds with a value",
  significant: "number of seeds with p ≤ .05", value: "value",
  low: "lower bound of the 95 % interval", high: "upper bound of the 95 % interval",
  width: "width of the 95 % interval", pvalue: "p-value", calibrated: "calibrated value",
};
const OWN = ["sd", "number", "significant", "width", "pvalue", "calibrated"]; // not in the unit of the measure

const FEW = 1000; // rows, about as many as layers have columns
const HIGH = ["cca", "svcca", "pwcca", "linreg", "procrustes"]; // of few rows; and biased CKA

/**
 * A warning where rows are few for a measure. The results do not say how many columns layers have.
 * @param {import("./data.js").Setting} setting
 * @param {number} n
 */
export function fewWords({ measure, name }, n) {
  const isHigh = measure === "cka" ? name.includes("(biased") : HIGH.includes(measure);
  return isHigh && n < FEW ? `n = ${inWords(n)} is few: where layers have more columns than that, values are high for any two layers.` : "";
}

/**
 * The planes that can be shown, with the width of intervals.
 * @param {Planes} planes
 * @returns {Planes}
 */
export function withWidth(planes) {
  const { low, high } = planes;
  return low && high ? { ...planes, width: high.map((value, at) => value - low[at]) } : planes;
}

/**
 * The plane that is shown: the wanted one if the grid has it, else the value or the mean.
 * @param {Planes} planes
 * @param {string} wanted
 */
export function shownPlane(planes, wanted) {
  return Object.hasOwn(planes, wanted) ? wanted : planes.mean ? "mean" : "value";
}

/**
 * @param {Planes} planes
 * @returns {[string, string][]}
 */
export function planeChoices(planes) {
  return Object.keys(planes).map((name) => [name, PLANES[name] ?? name]);
}

/** @type {Map<string, Promise<number>>} */
const largest = new Map();

/**
 * The largest value of a plane over all grids of a measure on the page.
 * @param {string} measure
 * @param {string} name
 */
async function findLargest(measure, name) {
  let most = 0;
  for (const grid of page.grids) {
    if (grid.tiles || settingOf(grid).measure !== measure || !grid.parts === (name === "sd")) continue;
    for (const value of withWidth(await planesOf(grid))[name] ?? []) if (Number.isFinite(value) && value > most) most = value;
  }
  return most;
}

/**
 * The range of colours of a plane, which is the same for all grids of a measure.
 * @param {Grid} grid
 * @param {string} name
 * @returns {Promise<[number, number]>}
 */
export async function planeRange(grid, name) {
  if (!OWN.includes(name)) return settingOf(grid).range;
  if (name === "pvalue") return [0.1, 0]; // a small one is bright
  if (name === "calibrated") return [0, 1];
  if (["number", "significant"].includes(name)) return [0, grid.parts?.length ?? 1];
  const { measure } = settingOf(grid), key = joined([measure, name]);
  const known = largest.get(key) ?? findLargest(measure, name);
  largest.set(key, known);
  return [0, await known || 1];
}

/**
 * What the colours do not tell apart: values beyond their range.
 * @param {Float32Array} values
 * @param {[number, number]} range
 */
export function beyondWords(values, range) {
  const [low, high] = [Math.min(...range), Math.max(...range)], slack = (high - low) * 1e-4; // values are stored in steps
  const beyond = values.filter((value) => value < low - slack || value > high + slack), { length } = beyond;
  if (!length) return "";
  const least = beyond.reduce((a, b) => Math.min(a, b)), most = beyond.reduce((a, b) => Math.max(a, b)); // also infinite
  const ends = [least, ...(most === least ? [] : [most])].map((end) => short(end, 2));
  return `${inWords(length)} cell${length === 1 ? "" : "s"} beyond the range (${ends.join(" to ")}) ` +
    `${length === 1 ? "has" : "have"} the colour of its end`;
}

/**
 * The title of the colours.
 * @param {Grid} grid
 * @param {string} name
 */
export function planeTitle(grid, name) {
  const measure = settingOf(grid).name;
  if (name === "value") return measure;
  return name === "pvalue" ? `p-value of ${measure}, .1 or more to 0` : `${measure}: ${PLANES[name]}`;
}

/**
 * What the planes say of a cell, the shown one first.
 * @param {Planes} planes
 * @param {number} at
 */
export function wordsOf(planes, at) {
  const { value, low, high, pvalue, calibrated, paired, pooled, error, significant, mean, sd, lowest, highest, number } = planes;
  const known = (/** @type {Float32Array | undefined} */ plane) => plane && !isNaN(plane[at]);
  if (mean) {
    return [`mean ${short(mean[at])}`, `SD ${short(sd[at])}`,
      `${short(lowest[at])} to ${short(highest[at])} in ${number[at]} seed${number[at] === 1 ? "" : "s"}`,
      ...(significant && known(significant) ? [`p ≤ .05 in ${significant[at]}`] : [])];
  }
  const words = [short(value[at])];
  if (low && high && known(low)) {
    const beyond = value[at] <= 1 && high[at] > 1 ? " (symmetric: may leave the measure's range)" : "";
    words.push(`95 % interval ${short(low[at])} to ${short(high[at])}${beyond}`);
  }
  if (known(error)) {
    words.push(paired ? `SD of the differences ${short(paired[at])}` : `pooled SD ${short(pooled[at])}`,
      `standard error ${short(error[at])}`);
  }
  if (known(pvalue)) words.push(`p = ${short(pvalue[at])}`);
  if (known(calibrated)) words.push(`calibrated ${short(calibrated[at])}`);
  return words;
}

/**
 * The p-values of the block scores of a grid, or of its seeds.
 * @param {Grid} grid
 */
export function testWords({ tests = [] }) {
  const found = tests.map(([, p]) => p).sort((a, b) => a - b), [first] = found, last = found[found.length - 1];
  if (!found.length) return "block score: not tested";
  return `block score: ${found.length === 1 ? `p = ${short(first)}`
    : `p ≤ .05 in ${found.filter((p) => p <= LEVEL).length} of ${found.length} seeds (${short(first)} to ${short(last)})`}`;
}

/**
 * Cells of the values that are not significant: in a grid of seeds, in half of them or more.
 * @param {Planes} planes
 * @param {string} plane that is shown
 */
export function dotsOf({ pvalue, significant, number }, plane) {
  if (plane === "value" && pvalue) return Uint8Array.from(pvalue, (p) => Number(p > LEVEL));
  if (plane !== "mean" || !significant) return undefined;
  return Uint8Array.from(significant, (count, at) => Number(count <= number[at] / 2));
}
