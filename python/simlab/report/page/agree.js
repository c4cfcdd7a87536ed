/** Do seeds agree: how far each is from the others, which of them deviate, and a line of dots for each grid. */
import { isJoint, keyOf, modelName, pairOf } from "./axes.js";
import { short } from "./csv.js";
import { page, settingOf } from "./data.js";
import { button, make } from "./make.js";
import { gridOfPart, planesOf, relationOf, seedsOf, BETWEEN, OTHER, SAME, WITHIN } from "./seeds.js";
import { change } from "./state.js";

/** @typedef {import("./data.js").Grid} Grid */
/** @typedef {Awaited<ReturnType<typeof distances>>} Distances the farthest seed first */

const FAR = 3; // medians of the distances of the other seeds

/** @param {Grid} grid */
export function nameOfLine(grid) {
  return make("span", "name", `${settingOf(grid).task}: ${pairOf(grid)}`);
}

/**
 * How far each seed is from the mean of the others, as the root of the mean square over cells, and which seeds
 * deviate. A seed is compared with the median of the others, whose own distances leave it out: it cannot
 * hide behind what it does to their means.
 * @param {Grid} grid
 */
export async function distances(grid) {
  const seeds = await seedsOf(grid), { mean, number } = await planesOf(grid);
  const distance = (/** @type {number} */ seed, /** @type {Float32Array | undefined} */ without = undefined) => {
    let sum = 0, count = 0;
    seeds[seed].forEach((value, at) => {
      const isLess = without && !isNaN(without[at]), others = number[at] - (isLess ? 2 : 1);
      if (isNaN(value) || others < 1) return;
      sum += (value - (mean[at] * number[at] - value - (isLess ? without[at] : 0)) / others) ** 2;
      count++;
    });
    return Math.sqrt(sum / count);
  };
  return (grid.parts ?? []).map((part, seed) => {
    const far = distance(seed);
    const usual = median(seeds.flatMap((_, other) => (other === seed ? [] : [distance(other, seeds[seed])])));
    return { part, name: seedName(part), far, isOdd: far > FAR * usual };
  }).sort((a, b) => b.far - a.far);
}

/**
 * The model that has the seed. Of two models with one seed a pair alone does not tell which deviates: the seed of both.
 * @param {import("./seeds.js").Part} part
 */
function seedName(part) {
  const { seed } = page.models[part.x];
  return relationOf(part) === SAME ? `seed ${seed}` : modelName(seed === null ? part.y : part.x);
}

/**
 * Name a seed of two models by the one of them that also deviates by itself, if the other one does not.
 * @param {Map<Grid, Distances>} found
 */
export function nameSides(found) {
  const odd = (/** @type {Grid} */ { setting, n }) => new Set([...found].flatMap(([other, all]) =>
    (other.setting === setting && other.n === n ? all : [])).filter(({ part, isOdd }) => isOdd && relationOf(part) === WITHIN)
    .map(({ part }) => part.x));
  for (const [grid, all] of found) {
    const alone = odd(grid);
    for (const seed of all) {
      const sides = [seed.part.x, seed.part.y].filter((model) => alone.has(model));
      if (seed.isOdd && relationOf(seed.part) === SAME && sides.length === 1) seed.name = modelName(sides[0]);
    }
  }
}

/** @param {number[]} values */
function median(values) {
  const known = values.filter((value) => !isNaN(value)).sort((a, b) => a - b), half = known.length / 2;
  return (known[Math.ceil(half) - 1] + known[Math.floor(half)]) / 2;
}

/**
 * Dots of seeds on a line, of which one has its name beside it: the outermost, or the one that is pointed at,
 * touched or chosen with the arrow keys.
 * @param {Distances} all
 * @param {number} most the distance at the end of the line
 * @param {string} of the pair and the task
 */
function stripOf(all, most, of) {
  const strip = make("span", { class: "strip", tabindex: "0", role: "slider", "aria-label": `Seeds of ${of}`,
    "aria-valuemin": "1", "aria-valuemax": String(all.length) }), label = make("b");
  const dots = [...all].reverse(), places = dots.map(({ far }) => (far / most) * 100 || 0);
  const marks = dots.map(({ isOdd }, at) => {
    const dot = make("i", isOdd ? "odd" : "");
    dot.style.left = `${places[at]}%`;
    return dot;
  });
  let chosen = 0;
  const choose = (/** @type {number} */ at) => {
    chosen = Math.min(Math.max(at, 0), dots.length - 1);
    label.textContent = `${dots[chosen].name} ${short(dots[chosen].far)}`;
    strip.setAttribute("aria-valuenow", String(chosen + 1));
    strip.setAttribute("aria-valuetext", label.textContent);
    const isLeft = places[chosen] < 50;
    label.style.left = isLeft ? `calc(${places[chosen]}% - 4px)` : "";
    label.style.right = isLeft ? "" : `calc(${100 - places[chosen]}% - 4px)`;
    marks.forEach((dot, mark) => dot.classList.toggle("chosen", mark === chosen));
  };
  strip.onpointerdown = strip.onpointermove = ({ clientX }) => {
    const { left, width } = strip.getBoundingClientRect(), place = ((clientX - left) / width) * 100;
    choose(places.reduce((best, one, at) => (Math.abs(one - place) < Math.abs(places[best] - place) ? at : best), 0));
  };
  strip.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -dots.length, End: dots.length }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(chosen + step);
  };
  choose(dots.length - 1);
  strip.append(label, ...marks);
  return strip;
}

/** @param {Grid} grid */
export function hasDistances(grid) {
  return !isJoint(grid) && !!grid.parts && grid.parts.length > 2 && ![BETWEEN, OTHER].includes(relationOf(grid.parts[0]));
}

/** @param {Map<Grid, Distances>} found */
export function agreement(found) {
  const most = Math.max(1e-9, ...[...found.values()].flat().map(({ far }) => far || 0));
  const lines = [...found].map(([grid, all]) => {
    const words = all.filter(({ isOdd }) => isOdd).map(({ part, name, far }) =>
      button(`${name} ${short(far)}`, () => change({ view: "grids", a: keyOf(gridOfPart(part)), b: keyOf(grid),
        show: "" }), `${name} ${short(far)} minus the mean of ${pairOf(grid)} on ${settingOf(grid).task}`));
    return make("p", "seeds", nameOfLine(grid), stripOf(all, most, `${pairOf(grid)} on ${settingOf(grid).task}`),
      `median ${short(median(all.map(({ far }) => far)))}; `, ...(words.length ? ["deviate: ", ...words] : ["no seed deviates"]));
  });
  return lines.length ? [...lines, make("p", { class: "axis", "aria-hidden": "true" }, make("span", "name"),
    make("span", "ends", ...["0", "distance", short(most)].map((words) => make("span", {}, words))))] : [];
}
