/** Colour maps that readers with colour vision deficiencies can read, and the values they show. */

/** @type {Record<string, string[]>} Colours at equal distances, from the lowest value on. */
const ANCHORS = {
  viridis: ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70",
    "7ad151", "bddf26", "fde725"],
  cividis: ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369",
    "e1cc55", "fee838"],
  grey: ["101010", "f4f4f4"],
  difference: ["b35806", "e08214", "fdb863", "fee0b6", "f7f7f7", "d8daeb", "b2abd2", "8073ac",
    "542788"],
};
export const LINES = ["#0072b2", "#d55e00", "#009e73", "#bb5f93", "#967a00", "#2e93cc"]; // 3:1 on both grounds
export const MAPS = ["viridis", "cividis", "grey"];
const STEPS = 256;

/** @typedef {Uint8ClampedArray} Lookup Red, green and blue of each of 256 steps. */

/**
 * @param {string} name
 * @returns {Lookup}
 */
export function lookup(name) {
  const anchors = (Object.hasOwn(ANCHORS, name) ? ANCHORS[name] : ANCHORS.viridis).map((hex) =>
    [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const table = new Uint8ClampedArray(STEPS * 3);
  for (let step = 0; step < STEPS; step++) {
    const at = (step / (STEPS - 1)) * (anchors.length - 1);
    const below = Math.min(Math.floor(at), anchors.length - 2);
    for (let part = 0; part < 3; part++) {
      const [from, to] = [anchors[below][part], anchors[below + 1][part]];
      table[step * 3 + part] = from + (to - from) * (at - below);
    }
  }
  return table;
}

/**
 * @param {Lookup} table
 * @param {number} step
 */
export function rgb(table, step) {
  return `rgb(${table.slice(step * 3, step * 3 + 3)})`;
}

/**
 * The step of a colour map that shows a value; a range of distances goes from high to low.
 * @param {number} value
 * @param {[number, number]} range
 */
export function stepOf(value, [low, high]) {
  const share = high === low ? 0.5 : (value - low) / (high - low);
  return Math.round(Math.min(Math.max(share, 0), 1) * (STEPS - 1));
}

/**
 * Black or white, whichever has more contrast with a colour: 4.5 or more.
 * @param {Lookup} table
 * @param {number} step
 */
export function inkOn(table, step) {
  const [red, green, blue] = [...table.subarray(step * 3, step * 3 + 3)].map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}

/**
 * The lowest and the highest value, in the direction of a range.
 * @param {Float32Array} values
 * @param {[number, number]} range
 * @returns {[number, number]}
 */
export function fitted(values, [first, last]) {
  const [low, high] = extent(values);
  return first > last ? [high, low] : [low, high];
}

/**
 * The lowest and the highest finite value.
 * @param {Float32Array} values
 * @returns {[number, number]}
 */
export function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}
