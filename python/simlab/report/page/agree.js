/** Do seeds agree: how far each is from the others, which of them deviate, and a line of dots for each grid. */
import { isJoint, keyOf, layerTitle, layersOf, modelName, pairOf } from "./axes.js";
import { short } from "./csv.js";
import { lengthOf, page, settingOf } from "./data.js";
import { button, make } from "./make.js";
import { gridOfPart, planesOf, relationOf, seedsOf, BETWEEN, OTHER, SAME, WITHIN } from "./seeds.js";
import { change } from "./state.js";

/** @typedef {import("./data.js").Grid} Grid */
/** @typedef {Awaited<ReturnType<typeof distances>>} Distances the farthest seed first */

const FAR = 3; // medians of the distances of the other seeds
// The same for single layers. Of 300 drawn grids of 7, 13 or 25 layers, normal noise that is one number for a whole
// layer passes it in 4 to 7 % with 5 seeds, in 5 to 18 % with 3, and noise that cells share by half in none.
const FAR_LAYER = 5;
const AS_FAR = 2 / 3; // of the farthest layer's distance: nearer layers contain cells of that layer

/** @param {Grid} grid */
export function nameOfLine(grid) {
  return make("span", "name", `${settingOf(grid).task}: ${pairOf(grid)}`);
}

/**
 * How far each seed is from the mean of the others, as the root of the mean square over cells, and which seeds
 * deviate, on the whole or in some layers. A seed is compared with the median of the others, whose own distances leave
 * it out: it cannot hide behind what it does to their means.
 * @param {Grid} grid
 */
export async function distances(grid) {
  const seeds = await seedsOf(grid), { mean, number } = await planesOf(grid);
  const columns = lengthOf(grid.y), rows = lengthOf(grid.x);
  /** The distance over all cells, over each row and over each column. */
  const distance = (/** @type {number} */ seed, /** @type {Float32Array | undefined} */ without = undefined) => {
    const sums = new Float64Array(1 + rows + columns), counts = new Float64Array(sums.length);
    seeds[seed].forEach((value, at) => {
      const isLess = without && !isNaN(without[at]), others = number[at] - (isLess ? 2 : 1);
      if (isNaN(value) || others < 1) return;
      const square = (value - (mean[at] * number[at] - value - (isLess ? without[at] : 0)) / others) ** 2;
      for (const place of [0, 1 + Math.floor(at / columns), 1 + rows + at % columns]) {
        sums[place] += square;
        counts[place]++;
      }
    });
    return sums.map((sum, place) => Math.sqrt(sum / counts[place]));
  };
  return (grid.parts ?? []).map((part, seed) => {
    const [far, ...ofLayers] = distance(seed);
    const others = seeds.flatMap((_, other) => (other === seed ? [] : [[...distance(other, seeds[seed])]]));
    const [usual, ...usually] = others[0].map((_, place) => median(others.map((of) => of[place])));
    const least = median(others.flatMap(([, ...of]) => of));
    const odd = ofLayers.map((of, place) => (of > FAR_LAYER * Math.max(usually[place], least) ? of : 0));
    const most = Math.max(...odd), first = odd.indexOf(most) < rows ? 0 : rows; // its rows tell, or its columns
    const all = layersOf(first ? grid.y : grid.x).map(({ layer }) => layer);
    const some = all.filter((_, place) => most && odd[first + place] > AS_FAR * most);
    return { part, name: seedName(part), far, usual, layers: some.length < all.length ? some : [],
      isOdd: far > FAR * usual || some.length > 0 };
  }).sort((a, b) => b.far - a.far);
}

/**
 * @param {number[]} layers that ascend
 * @returns {string} such as "layers 3 to 5", or nothing
 */
function layerWords(layers) {
  const [first] = layers, last = layers[layers.length - 1], isRun = last - first === layers.length - 1;
  if (layers.length < 2) return layers.map(layerTitle).join("");
  return `layers ${isRun ? `${first} to ${last}` : layers.join(", ")}`;
}

/**
 * A button that names a seed that deviates, and opens it minus the mean of the others.
 * @param {Grid} grid
 * @param {Distances[0]} seed
 */
export function oddButton(grid, { part, name, layers }) {
  const words = name + (layers.length ? ` (${layerWords(layers)})` : "");
  return button(words, () => change({ view: "grids", a: keyOf(gridOfPart(part)), b: keyOf(grid), show: "" }),
    `${words} minus the mean of the other seeds of ${pairOf(grid)} on ${settingOf(grid).task}`);
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
    const times = ({ far, usual } = all[0]) => `${short(far)}, ${short(far / usual, 1)} times the others’ ${short(usual)}`;
    const words = all.filter(({ isOdd }) => isOdd).flatMap((seed) => [oddButton(grid, seed), ` ${times(seed)} `]);
    const farthest = [...all].sort((a, b) => b.far / b.usual - a.far / a.usual)[0];
    return make("p", "seeds", nameOfLine(grid), stripOf(all, most, `${pairOf(grid)} on ${settingOf(grid).task}`),
      ...(words.length ? ["deviate: ", ...words] : [`no seed deviates: at most ${times(farthest)}`]));
  });
  return lines.length ? [...lines, make("p", { class: "axis", "aria-hidden": "true" }, make("span", "name"),
    make("span", "ends", ...["0", "distance", short(most)].map((words) => make("span", {}, words))))] : [];
}
