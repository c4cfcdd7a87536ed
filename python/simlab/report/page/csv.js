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
 * A value for a cell: two digits after the point.
 * @param {number} value
 */
export function brief(value) {
  return Math.abs(value) < 1e4 ? short(Number(value.toFixed(2)), 2) : value.toExponential(0);
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

/**
 * @param {string[]} columns
 * @param {Iterable<unknown[]>} rows
 */
export function csv(columns, rows) {
  const lines = [columns.map(quoted).join(",")];
  for (const row of rows) lines.push(row.map(quoted).join(","));
  return lines.join("\n") + "\n";
}
