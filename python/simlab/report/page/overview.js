/** The first view: all pairs and tasks of a measure at a glance, change by layer, and odd seeds. */
import { agreement, distances, hasDistances, nameOfLine, nameSides, oddButton } from "./agree.js";
import { isJoint, keyOf, layersOf, modelName, pairOf, seedCount, titleOf } from "./axes.js";
import { changeOf, curvesBeside, differing, hasScores, isTuned, measureKey, measureOf, onceOf, shownGrids, titled } from "./bylayer.js";
import { blockKey } from "./blocks.js";
import { lookup } from "./colours.js";
import { inWords, short } from "./csv.js";
import { page, settingOf } from "./data.js";
import { baselineWords, factOf } from "./facts.js";
import { isFound, isFoundFact, isSeenPart, passes } from "./filter.js";
import { Choice, button, colourBar, headed, make } from "./make.js";
import { paintCells } from "./paint.js";
import { MODELS, valuesOf } from "./seeds.js";
import { fewWords, testWords } from "./shown.js";
import { change, joined, state } from "./state.js";
import { takenWords } from "./studies.js";
import { gridStep, stepsOf, trainingChart } from "./training.js";

/** @typedef {import("./data.js").Grid} Grid */

const MOST_ROWS = 60;
const MOST_STEPS = 6; // of a training
const MOST_FACTS = 3; // sentences that need no click
const MOST_CUT = 3; // layers that go
/** @type {Record<string, string>} What reads the layers of a truncated model. */
const HEADS = { "truncation-untuned": "with its own head", "truncation-tuned": "with its head tuned for each layer",
  "truncation-tuned-orig": "before fine-tuning, with a new head for each layer" };

/**
 * A grid as a small picture.
 * @param {Grid} grid
 */
async function thumb(grid) {
  const canvas = make("canvas"), down = layersOf(grid.x), across = layersOf(grid.y);
  const values = await valuesOf(grid), { range } = settingOf(grid), table = lookup(state.colours);
  paintCells(canvas, { down, across, range, table, values, stride: across.length });
  const title = titleOf(grid), { task } = settingOf(grid), step = gridStep(grid);
  const count = grid.parts ? `mean of ${seedCount(grid)}` : "one grid";
  const words = step === null ? count : `step ${inWords(step)}${grid.parts ? `, ${count}` : ""}`;
  const made = button("", () => change({ view: "grids", a: keyOf(grid), show: "", b: "", block: "" }), `${title} on ${task}: ${words}`);
  made.className = "thumb";
  made.title = `${title}, ${task}, n = ${inWords(grid.n)}`;
  made.append(canvas, make("span", {}, words));
  return made;
}

/** @param {Grid[]} grids */
async function multiples(grids) {
  const tasks = [...new Set(grids.map(({ setting }) => page.settings[setting].task))];
  /** @type {Map<string, Grid[]>} */
  const rows = new Map();
  for (const grid of grids) {
    const step = gridStep(grid);
    const pair = step === null ? pairOf(grid) : `${page.models[page.axes[grid.x][0][0]].run} by step (${
      grid.parts ? grid.comparison.replace(/\[\d+\]/g, "") : grid.comparison})`;
    rows.set(pair, [...(rows.get(pair) ?? []), grid]);
  }
  const pairs = [...rows], { table, body } = headed(["pair", ...tasks]);
  table.className = "multiples";
  for (const [pair, ofPair] of pairs.slice(0, MOST_ROWS)) {
    const line = body.insertRow();
    line.append(make("th", { scope: "row" }, pair));
    for (const task of tasks) {
      const cell = line.insertCell();
      const mine = ofPair.filter(({ setting }) => page.settings[setting].task === task)
        .sort((a, b) => Number(gridStep(a)) - Number(gridStep(b)));
      const few = new Set(gridStep(mine[0] ?? ofPair[0]) === null ? mine : Array.from({ length: MOST_STEPS }, (_, at) =>
        mine[Math.round(at * (mine.length - 1) / (MOST_STEPS - 1))]).filter(Boolean));
      for (const grid of few) cell.append(await thumb(grid));
    }
  }
  const parts = [make("div", "across", table)];
  if (pairs.length > MOST_ROWS) {
    parts.push(make("p", "hint", `${pairs.length - MOST_ROWS} more pairs: see Grids.`));
  }
  return parts;
}

/** @param {Grid} grid */
function blockLine(grid) {
  const all = grid.parts?.length ?? 1, last = (/** @type {number[]} */ { length }) => length - 1;
  const blocks = [...grid.blocks ?? []].sort(([, a], [, b]) => a[0] - b[0] || a[last(a)] - b[last(b)]);
  return make("p", "seeds blocks", nameOfLine(grid), make("span", "those", ...blocks.map(([, layers, count = 1]) => {
    const words = `layers ${layers[0]} to ${layers[layers.length - 1]}${all > 1 ? `: ${count} of ${all} seeds` : ""}`;
    return button(words, () => change({ view: "grids", a: keyOf(grid), b: "", show: "", order: "model",
      block: blockKey(layers) }), `${words}, ${pairOf(grid)} on ${settingOf(grid).task}`);
  }), ...(blocks.length ? [] : ["no two layers are a block"]), make("span", {}, testWords(grid))));
}

/**
 * The seeds that deviate, if that is known of all that the filter lets through.
 * @param {Grid} grid
 * @param {import("./agree.js").Distances} [all]
 */
function oddOf(grid, all) {
  const odd = all?.filter(({ isOdd, part }) => isOdd && isSeenPart(part)).map((seed) => oddButton(grid, seed));
  return odd?.length || (grid.parts ?? []).every(isSeenPart) ? odd : undefined;
}

/**
 * What grids of one measure say.
 * @param {Grid[]} grids
 */
async function findingsOf(grids) {
  const once = onceOf(grids), apart = differing(once);
  const settled = once.filter((grid) => [undefined, grid].includes(stepsOf(grid).at(-1)));
  const seeds = new Map(await Promise.all(settled.filter(hasDistances).map(async (grid) =>
    /** @type {const} */ ([grid, await distances(grid)]))));
  nameSides(seeds);
  const curves = await Promise.all(apart.map(changeOf)), tasks = apart.map((grid) => settingOf(grid).task);
  const facts = curves.flatMap((curve, at) => factOf(
    tasks[at] + (!curve.tuned || tasks.filter((task) => task === tasks[at]).length > 1 ? ` (${pairOf(apart[at])})` : ""), curve,
    oddOf(apart[at], seeds.get(apart[at]))))
    .sort(([a], [b]) => b - a).map(([, fact]) => fact);
  return { once, settled, seeds, curves, facts };
}

/**
 * The first sentence on each of the results that the measure is not of, with a button that shows their own measure.
 * @param {Grid[]} grids of all measures
 * @param {string} measure that is shown
 */
async function otherResults(grids, measure) {
  const lines = [], seen = new Set(grids.filter((grid) => measureOf(grid) === measure).flatMap((grid) => settingOf(grid).sources));
  for (const source of page.sources.filter((name) => !seen.has(name))) {
    const own = grids.filter((grid) => settingOf(grid).sources.includes(source)), key = own[0] && measureOf(own.find(isTuned) ?? own[0]);
    if (!key) continue;
    const { facts: [fact = ["grids without a change by layer."]] } = await findingsOf(own.filter((grid) => measureOf(grid) === key));
    lines.push(make("p", "fact", make("b", {}, `${source}: `), ...fact, " ", button("Show", () => change({ measure: key }), `Show ${source}`)));
  }
  return lines;
}

/**
 * What the name of several seeds means.
 * @param {Grid[]} grids
 */
function seedNames(grids) {
  const found = grids.flatMap(({ x, y }) => [...page.axes[x], ...page.axes[y]]).find(([model]) => model >= MODELS);
  return found ? [make("span", {}, `${modelName(found[0])} is one model with several seeds.`)] : [];
}

/** @param {Grid[]} grids */
function fewRows(grids) {
  const few = grids.map((grid) => fewWords(settingOf(grid), Math.min(...grids.map(({ n }) => n)))).find(Boolean);
  return few ? [make("p", "hint", few)] : [];
}

/** @param {Grid[]} grids */
function nOf(grids) {
  const all = [...new Set(grids.map(({ n }) => n))].sort((a, b) => a - b), last = all[all.length - 1];
  return `n = ${inWords(all[0])}${all.length > 1 ? ` to ${inWords(last)}` : ""}`;
}

/** A sentence for each truncated model that passes the filter, after the first of each task behind a click. */
function cuts() {
  /** @type {Map<string, import("./data.js").Fact[]>} */
  const found = new Map();
  for (const fact of page.facts) {
    const [task, model, , what, value, , , n] = fact, [, work] = what.split(", ");
    if (!HEADS[work] || value === null || !isFoundFact(fact)) continue;
    const key = joined([task, page.models[model].family, what, n]);
    found.set(key, [...found.get(key) ?? [], fact]);
  }
  const tasks = new Set(), [first, others] = [/** @type {Element[]} */ ([]), /** @type {Element[]} */ ([])];
  for (const facts of found.values()) {
    const [[task, model, , what]] = facts, [score, work] = what.split(", "), seeds = new Set(facts.map((fact) => fact[1])).size;
    const name = seeds > 1 ? `${page.models[model].stem} (mean of ${seeds} seeds)` : modelName(model);
    const top = [...new Set(facts.map((fact) => fact[2]))].sort((a, b) => b - a), of = (/** @type {number} */ layer) => {
      const values = facts.filter((fact) => fact[2] === layer).map((fact) => Number(fact[4]));
      return short(values.reduce((sum, value) => sum + value, 0) / values.length);
    };
    const without = top.slice(1, 1 + MOST_CUT).map((layer, at) => `, ${of(layer)} without the last ${at ? `${top[0] - layer} layers` : "layer"}`);
    const words = `On ${task}, ${name} ${HEADS[work]}: ${score} ${of(top[0])} with all layers${without.join("")}${baselineWords(facts[0])}.`;
    (tasks.has(task) ? others : first).push(make("p", "cut", words));
    tasks.add(task);
  }
  return [...first, ...behind(others, "more on scores without layers")];
}

/**
 * Lines behind a click.
 * @param {Element[]} lines
 * @param {string} words after their number
 */
function behind(lines, words) {
  return lines.length ? [make("details", {}, make("summary", {}, `${lines.length} ${words}`), ...lines)] : [];
}

/**
 * Whether a joint grid is stored that another one shows with each model once, over its seeds.
 * @param {Grid} together
 * @param {Grid} grid
 */
function isSame(together, grid) {
  return together !== grid && isJoint(grid) && together.setting === grid.setting && together.n === grid.n && together.comparison === grid.comparison;
}

const measureChoice = new Choice("Measure of all pictures", (measure) => change({ measure }));
const takenOf = make("span", "hint"), measureLine = make("div", "bar", measureChoice.box, takenOf), content = make("div");

export const isEmpty = !page.grids.length && !page.trainings.length && !hasScores;

/** @param {HTMLElement} place */
export async function showOverview(place) {
  if (isEmpty) {
    place.replaceChildren(make("p", {}, "The results hold no grids."));
    return;
  }
  const listedNow = shownGrids.filter(isFound);
  const runs = page.trainings.filter(({ task, kind, name, run }) => passes({ task, kind, measure: name, model: run }));
  const measures = new Map([...listedNow.map(({ setting }) => page.settings[setting]), ...runs]
    .map((of) => [measureKey(of), of]));
  const first = [...measures.keys()].find((key) => listedNow.some((grid) =>
    measureOf(grid) === key && isTuned(grid))) ?? [...measures.keys()][0];
  const measure = measures.has(state.measure) ? state.measure : first;
  const setting = measures.get(measure) ?? { name: "", range: [0, 1] };
  const trainings = runs.filter((of) => measureKey(of) === measure);
  const grids = listedNow.filter((grid) => measureOf(grid) === measure);
  const [low, high] = setting.range, { once, settled, seeds, curves, facts: ofGrids } = await findingsOf(grids);
  const others = await otherResults(listedNow, measure), named = others.length ? [...new Set(grids.flatMap((grid) => settingOf(grid).sources))].join(", ") : "";
  const facts = [...ofGrids, ...trainings.flatMap(({ fact }) => (fact ? [[fact]] : []))]
    .map((fact) => make("p", "fact", ...(named ? [make("b", {}, `${named}: `)] : []), ...fact));
  const blocks = settled.filter((grid) => (grid.blocks?.length || grid.tests?.length) && !isJoint(grid));
  measureLine.hidden = !measures.size;
  const taken = takenWords(listedNow, runs);
  measureChoice.set([...measures].map(([key, { kind, name }]) => [key, [kind ? `${name}, ${kind}` : name,
    taken.get(key)?.brief].filter(Boolean).join(": ")]), measure);
  takenOf.textContent = taken.get(measure)?.whole ?? "";
  if (!content.isConnected) place.append(measureLine, content);
  content.replaceChildren(
    ...(measures.size ? [] : [make("p", {}, state.find ? "No grid passes the filter." : "The results hold no grids.")]),
    ...facts.slice(0, MOST_FACTS), ...behind(facts.slice(MOST_FACTS), "more"), ...others, ...cuts(),
    ...(grids.length ? [make("div", "scale", make("b", {}, `${setting.name}, ${nOf(grids)}`), short(low, 2), colourBar(lookup(state.colours)),
      short(high, 2), make("span", "hatch"), "hatched: undefined. Rows are layers of the first model, upwards from the embeddings; columns are layers of the second. A click opens a grid.", ...seedNames(once)), ...fewRows(grids)] : []),
    make("div", "beside", ...(grids.length ? await multiples(once.filter((grid) => !once.some((of) => of.tiles && isSame(of, grid)))) : []), curvesBeside(curves, setting)), ...section("about-steps", trainings.map(trainingChart)),
    ...section("about-seeds", agreement(seeds)), ...section("about-blocks", blocks.map(blockLine)));
}

/**
 * @param {string} name of the heading
 * @param {Node[]} content
 */
function section(name, content) {
  return content.length ? [titled(name), ...content] : [];
}
