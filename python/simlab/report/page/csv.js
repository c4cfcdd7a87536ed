/** Numbers and tables as text. */

/**
 * A value with some digits, without a leading zero.
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export function short(value, digits = 3) {
  if (value === null || value === undefined || isNaN(value)) return "undefined";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e4 || size < 10 ** -digits)) return value.toExponential(2);
  return value.toFixed(digits).replace(/^(-?)0\./, "$1.");
}

/**
 * The number of a range that is nearest to a number; of an empty range its end.
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/**
 * A value for a cell: two digits after the point, or three.
 * @param {number} value
 * @param {number} [digits]
 */
export function brief(value, digits = 2) {
  return Math.abs(value) < 1e4 ? short(Number(value.toFixed(digits)), digits) : value.toExponential(0);
}

/** @param {number} count */
export function inWords(count) {
  return count.toLocaleString("en");
}

/** @param {unknown} value */
function quoted(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const MOST_LINES = 4096; // that are made at once

/**
 * A table as the parts of a text. The page goes on between them: a large table takes seconds.
 * @param {string[]} columns
 * @param {Iterable<unknown[]>} rows
 */
export async function csv(columns, rows) {
  /** @type {string[]} */
  const parts = [];
  let lines = [columns];
  const end = () => parts.push(lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n");
  for (const row of rows) {
    lines.push(/** @type {string[]} */ (row));
    if (lines.length < MOST_LINES) continue;
    end();
    lines = [];
    await new Promise((done) => setTimeout(done));
  }
  if (lines.length) end();
  return parts;
}
