/** One sentence of facts on each curve of changes. */
import { short } from "./csv.js";
import { page } from "./data.js";

/** @typedef {{layer: number, mean: number, sd: number, seeds: number, values: number[]}} Layer of a curve */

const ERRORS = 2; // standard errors of a difference over seeds
const MOST_NAMED = 3; // layers, or seeds

/**
 * Whether a difference of two layers is more than two standard errors, over the seeds that have both.
 * @param {Layer} one
 * @param {Layer} other
 */
function areApart(one, other) {
  const found = one.values.map((value, seed) => value - other.values[seed]).filter((value) => !isNaN(value));
  const n = found.length, mean = found.reduce((sum, value) => sum + value, 0) / n;
  const squares = found.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return n > 1 && Math.abs(mean) > ERRORS * Math.sqrt(squares / (n - 1) / n);
}

/**
 * The first layers that stand apart from the next one; none if none do.
 * @param {Layer[]} layers by their change
 */
function leading(layers) {
  const last = layers.slice(0, MOST_NAMED).findIndex((layer, at) => at + 1 < layers.length && areApart(layer, layers[at + 1]));
  return layers.slice(0, last + 1);
}

/** @param {string[]} words */
function inAnd(words) {
  return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}` : words[0];
}

/** @param {Layer[]} layers */
function namesOf(layers) {
  return layers.length > MOST_NAMED ? `${layers.length} layers` : inAnd(layers.map(({ layer }) => (layer ? `layer ${layer}` : "the embeddings")));
}

/** @param {HTMLElement[]} odd buttons that name seeds, the farthest first */
function deviating(odd) {
  const more = odd.length - MOST_NAMED;
  const named = odd.slice(0, MOST_NAMED).sort((a, b) => String(a.textContent).localeCompare(String(b.textContent), "en", { numeric: true }));
  if (!odd.length) return ["; no seed deviates"];
  const between = (/** @type {number} */ at) => (at ? at < named.length - 1 ? ", " : " and " : "");
  return ["; seeds that deviate: ", ...named.flatMap((one, at) => [between(at), one]), ...(more > 0 ? [`, and ${more} more`] : [])];
}

/**
 * Where two seeds differ most.
 * @param {Layer[]} known
 */
function apart(known) {
  const both = known.filter(({ values }) => values.every((value) => !isNaN(value)));
  if (!both.length) return [];
  const by = ({ values: [one, other] } = both[0]) => Math.abs(one - other);
  const most = both.reduce((best, layer) => (by(layer) > by(best) ? layer : best), both[0]);
  return [`; the two seeds differ most at ${namesOf([most])} (${most.values.map((value) => short(value)).join(" and ")})`];
}

/**
 * One sentence of facts on a curve of changes, and how much it tells: the range of the changes. Layers are named
 * only where seeds tell them apart.
 * @param {string} of the task, and the pair of models where the task has several
 * @param {Awaited<ReturnType<typeof import("./bylayer.js").changeOf>>} curve
 * @param {HTMLElement[]} [odd] buttons of seeds that deviate, where that is known
 * @returns {[number, (string | Node)[]][]}
 */
export function factOf(of, { points, models, lines, tuned }, odd) {
  const known = points.map((point, at) => ({ ...point, values: lines.map((line) => line[at]) }))
    .filter(({ seeds }) => seeds).sort((a, b) => b.mean - a.mean);
  if (!known.length) return [];
  const one = models === 1, as = (/** @type {Layer} */ end) => known.filter(({ mean }) => short(mean) === short(end.mean));
  const most = one ? as(known[0]) : leading(known);
  const least = !one ? leading([...known].reverse()) : most.length < known.length ? as(known[known.length - 1]) : [];
  const means = (/** @type {Layer[]} */ layers) => (one ? layers.slice(0, 1) : layers).map(({ mean }) => short(mean)).join(", ");
  const spread = one ? "" : `, SD ${most.map(({ sd }) => short(sd)).join(", ")} over ${models} seeds`;
  const first = one && most.length > 1 && !least.length
    ? `${tuned ? "fine-tuning changes" : "the models differ at"} all ${most.length} layers alike (${means(most)})`
    : most.length ? `${tuned ? "fine-tuning changes" : "the models differ most at"} ${namesOf(most)}${
    tuned ? " most" : ""} (${means(most)}${spread})`
    : `no layer ${tuned ? "changes" : "differs"} more than the next by ${ERRORS} standard errors (${means(known.slice(-1))} to ${
      means(known.slice(0, 1))} over ${models} seeds)`;
  const last = least.length ? ` and ${tuned ? "" : "least at "}${namesOf(least)}${tuned ? " least" : ""} (${means(least)})` : "";
  return [[known[0].mean - known[known.length - 1].mean, [`On ${of}, ${first}${last}${one && tuned ? ", in one seed" : ""}`,
    ...(odd ? deviating(odd) : models === 2 ? apart(known) : []), "."]]];
}

/**
 * What simple models, such as the majority class, reach on the examples of a score.
 * @param {import("./data.js").Fact} fact
 */
export function baselineWords([task, , , what, , , , n]) {
  const mine = page.baselines.filter(([of, metric, count]) => of === task && count === n && what.startsWith(`${metric}, `));
  return mine.map(([, , , name, value]) => `; ${name}: ${short(value)}`).join("");
}
