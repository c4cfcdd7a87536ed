/** The view of grids, and what joins the views. */
import { inWords } from "./csv.js";
import { captionOf, keyOf, titleOf } from "./axes.js";
import { curvesOfGrid, hasChange, onceOf } from "./bylayer.js";
import { mark } from "./chart.js";
import { MAPS, lookup } from "./colours.js";
import { Scatter, differenceOf, namesOf } from "./compare.js";
import { isFoundView, showCurves } from "./curves.js";
import { element, isStored, lengthOf, page, settingOf } from "./data.js";
import { filterWords, isFound } from "./filter.js";
import { OTHERS, modelNamed, showLayer } from "./layer.js";
import { Choice, button, foldedIfSmall, make, unsay } from "./make.js";
import { isEmpty, showOverview } from "./overview.js";
import { Panel } from "./panel.js";
import { cut } from "./picture.js";
import { REST } from "./pointer.js";
import { modelTasks, showRuns } from "./runs.js";
import { planeChoices, shownPlane } from "./shown.js";
import { gridStep, stepsOf } from "./training.js";
import { addressOf, change, split, state, subscribe } from "./state.js";

/** @typedef {import("./heatmap.js").Shown} Shown */

const VIEWS = ["overview", "grids", "curves", "runs"];
const ORDERS = { model: "by model", layer: "by layer", clustered: "by clustering" };
const MOST_FOUND = 8; // grids that are listed
const MOST_TASKS = 6, MOST_NAME = 240; // tasks that are named, and the pixels of a name
const LEAST_SEEN = 120; // pixels of a layer that is opened: the page scrolls to it
const RANGES = { fixed: "fixed for the measure", fitted: "fitted to the grid" };

/** @type {Map<string, number>} */
const gridOfKey = new Map();
/** What is shown first: before and after fine-tuning, where the results have that. */
const FIRST = Math.max(0, page.grids.findIndex(hasChange));
page.grids.forEach((grid, number) => {
  const key = keyOf(grid);
  if (!gridOfKey.has(key)) gridOfKey.set(key, number);
});

/** @param {string} text */
function notice(text) {
  const place = element("notice");
  place.textContent = text;
  place.hidden = !text;
}

/** Panel A, panel B beside it, and their difference; cursors move together. */
const panels = page.grids.length ? {
  a: new Panel("a", "Grid A", follow, see),
  b: new Panel("b", "Grid B", follow, see),
  difference: new Panel("difference", "Difference", follow, see),
} : null;
if (panels) panels.difference.minus = panels.b;
const scatter = new Scatter();
const tools = {
  show: new Choice("Show", (show) => change({ show })),
  order: new Choice("Order", (order) => change({ order })),
  range: new Choice("Colour range", (range) => change({ range })),
  colours: new Choice("Colours", (colours) => change({ colours })),
};
const compare = make("input", { type: "checkbox" });
compare.onchange = () => {
  change({ b: compare.checked ? keyOf(nextOf(page.grids[gridOfKey.get(state.a) ?? FIRST])) : "" });
};
const toolLine = foldedIfSmall("Show, order, colours, compare", make("div", "bar", ...Object.values(tools).map(({ box }) => box),
  make("label", "check", compare, "Compare with a second grid")));
const filter = /** @type {HTMLInputElement} */ (element("find")), found = element("found");
const [{ task, measure, kind } = { task: "", measure: "", kind: "" }] = page.settings;
filter.placeholder = [task.split(" ")[0], page.models.some(({ seed }) => seed !== null) && "seed:1-3", measure && `measure:${measure}`,
  kind && `kind:${kind}`].filter(Boolean).join(" ");
filter.oninput = () => {
  found.hidden = false;
  change({ find: filter.value });
};
found.onclick = () => { found.hidden = true; }; // it lies over the page
filter.onkeydown = (/** @type {KeyboardEvent} */ { key }) => {
  if (key === "Enter") found.querySelector("button")?.click();
};

function showFound() {
  if (filter !== document.activeElement) filter.value = state.find;
  const all = state.find.trim(), grids = all ? page.grids.filter(isFound) : [];
  element("many").textContent = all && filterWords(grids, page.views.filter(isFoundView).length);
  found.replaceChildren(...onceOf(grids).slice(0, MOST_FOUND).map((grid) => button(`${titleOf(grid)}, ${captionOf(grid)}`,
    () => change({ view: "grids", a: keyOf(grid), b: "" }))));
}
const slider = make("input", { type: "range" }), stepName = make("span");
const stepLine = make("label", "check", stepName, slider);
slider.oninput = () => {
  if (panels) change({ a: keyOf(stepsOf(panels.a.grid)[slider.valueAsNumber]) }, true);
};
const panelLine = make("div", "panels");
const layerBox = make("div", "layers wide"), curveBox = make("div", "charts layers wide");
for (const box of [layerBox, curveBox]) {
  box.addEventListener("mark", (event) => {
    const { below, place } = /** @type {CustomEvent} */ (event).detail;
    goTo(below, place);
  });
}

/**
 * Move the cursor to a layer that a figure points at: its row and its column, or the column alone.
 * @param {string} below the label of the layers of the figure
 * @param {number} layer
 */
function goTo(below, layer) {
  const panel = below === OTHERS ? openPanel() : panels?.a, shown = panel?.map.shown;
  if (!panel || !shown) return;
  const places = [shown.down, shown.across].map((layers, side) => {
    const own = panel.map.cursor?.[side] ?? 0, { model } = layers[own];
    const found = layers.findIndex((one) => one.model === model && one.layer === layer);
    return found < 0 || (below === OTHERS && !side) ? own : found;
  });
  panel.map.moveTo(places[0], places[1], false, REST);
  panel.read(places[0], places[1]);
  panel.remember();
  follow(panel, places[0], places[1]);
}

/**
 * @param {Panel} moved
 * @param {number} row
 * @param {number} column
 */
function follow(moved, row, column) {
  for (const panel of Object.values(panels ?? {})) {
    if (panel === moved || panel.box.hidden || !panel.map.shown) continue;
    const { down, across } = panel.map.shown;
    if (row >= down.length || column >= across.length) continue;
    panel.map.moveTo(row, column, false);
    panel.read(row, column);
    panel.remember();
  }
  if (state.b) scatter.draw([row, column]);
  const { down, across } = moved.shown();
  mark("layer", down[row].layer);
  mark(OTHERS, across[column].layer);
}

/**
 * Panels beside each other show the same part of their grids.
 * @param {Panel} moved
 */
function see(moved) {
  for (const panel of Object.values(panels ?? {})) {
    if (panel !== moved && state.b && panel.map.shown) panel.map.look(moved.map.sight());
  }
}

function showTools() {
  const planes = panels?.a.planes ?? {};
  compare.checked = state.b !== "";
  tools.show.set(planeChoices(planes), shownPlane(planes, state.show));
  tools.order.set(Object.entries(ORDERS), Object.hasOwn(ORDERS, state.order) ? state.order : "model");
  tools.range.set(Object.entries(RANGES), state.range === "fitted" ? "fitted" : "fixed");
  tools.colours.set(MAPS.map((name) => [name, name]), MAPS.includes(state.colours) ? state.colours : MAPS[0]);
}

/** @param {import("./data.js").Grid} grid */
function showSteps(grid) {
  const steps = stepsOf(grid);
  stepLine.hidden = steps.length < 2;
  slider.max = String(steps.length - 1);
  slider.value = String(steps.indexOf(grid));
  stepName.textContent = `Step ${inWords(Number(gridStep(grid)))}`;
}

/**
 * The next grid that a grid can be compared with: of its size, over seeds if it is, of its measure, of the same models.
 * @param {import("./data.js").Grid} grid
 */
function nextOf(grid) {
  const at = page.grids.indexOf(grid), { measure } = settingOf(grid);
  const score = (/** @type {typeof grid} */ other) =>
    8 * Number(lengthOf(other.x) === lengthOf(grid.x) && lengthOf(other.y) === lengthOf(grid.y)) +
      4 * Number(!other.parts === !grid.parts) + 2 * Number(settingOf(other).measure === measure) +
      Number(titleOf(other) === titleOf(grid));
  return [...page.grids.slice(at + 1), ...page.grids.slice(0, at)]
    .reduce((best, other) => (best !== grid && score(best) >= score(other) ? best : other), grid);
}

/** @param {NonNullable<typeof panels>} given */
async function showDifference({ a, b, difference }) {
  const one = /** @type {Shown} */ (a.map.shown), other = /** @type {Shown} */ (b.map.shown);
  const fits = one.down.length === other.down.length && one.across.length === other.across.length;
  const isOfOne = settingOf(a.grid).measure === settingOf(b.grid).measure;
  scatter.box.hidden = !fits;
  difference.box.hidden = !fits || !isOfOne;
  if (!fits) {
    const [size, wanted] = [other, one].map(({ down, across }) => `${down.length} × ${across.length}`);
    notice(`The difference needs grids of one size: A is ${wanted}, B is ${size}.`);
    return;
  }
  if (!isOfOne) {
    notice("A and B are values of different measures, which have no difference; the scatter says whether they agree on the order of cells.");
    scatter.show(a, b);
    if (a.map.cursor) follow(a, ...a.map.cursor);
    return;
  }
  const { planes, dots, most, half, title, caption } = await differenceOf(a, b);
  const end = state.range === "fitted" ? most : half;
  Object.assign(difference, { grid: a.grid, planes, dots, bar: "A − B", undefined: "undefined in A or in B",
    dotted: "the means differ by less than two standard errors" });
  difference.draw(planes.value, one.down, one.across, [-end, end], lookup("difference"), title, caption);
  scatter.show(a, b);
  const maps = [a.map, b.map, difference.map], least = Math.max(...maps.map(({ margin }) => margin.left));
  for (const map of maps) {
    map.least = least;
    map.layOut();
  }
  if (a.map.cursor) follow(a, ...a.map.cursor);
}

/** The panel whose layer is open. */
function openPanel() {
  return panels && (state.layer.startsWith("b") && state.b ? panels.b : panels.a);
}

let shownLayer = state.layer;

async function showOpenLayer() {
  const opened = state.layer !== shownLayer;
  shownLayer = state.layer;
  const [, model, layer] = split(state.layer), number = modelNamed(model), panel = openPanel();
  layerBox.hidden = !panel || number < 0;
  const place = state.b ? panelLine : panels?.a.box; // beside a grid, below two
  if (place && layerBox.parentElement !== place) place.append(layerBox);
  if (panel && number >= 0) {
    await showLayer(layerBox, number, Number(layer), panel.grid, closeLayer);
    if (opened && layerBox.getBoundingClientRect().top > innerHeight - LEAST_SEEN) layerBox.scrollIntoView();
  }
}

/** Close the layer; the focus goes back to its grid, unless it is elsewhere. */
function closeLayer() {
  const inside = layerBox.contains(document.activeElement), panel = openPanel();
  change({ layer: "" });
  if (inside) panel?.map.canvas.focus();
}

addEventListener("keydown", ({ key, target }) => {
  const search = target instanceof HTMLInputElement && target.value !== "" && target.type === "search";
  if (key === "Escape" && shownView === "grids" && !layerBox.hidden && !search) closeLayer();
});

async function showGrids() {
  const place = element("view-grids");
  if (!panels) {
    place.textContent = "The results hold no grids.";
    return;
  }
  const { a, b, difference } = panels;
  if (!panelLine.isConnected) {
    panelLine.append(a.box, b.box, difference.box, scatter.box);
    place.prepend(toolLine, stepLine, panelLine);
  }
  const lost = [state.a, state.b].some((key) => key && !gridOfKey.has(key));
  notice(lost ? "The link names a grid that this page does not have; another one is shown." : "");
  b.box.hidden = difference.box.hidden = scatter.box.hidden = !state.b;
  for (const { map } of [a, b, difference]) map.least = 0;
  panelLine.classList.toggle("two", state.b !== "");
  await a.show(gridOfKey.get(state.a) ?? FIRST);
  if (state.b) {
    await b.show(gridOfKey.get(state.b) ?? FIRST, a.grid);
    namesOf(a.grid, b.grid).forEach((name, at) => {
      [a, b][at].title.textContent = `${"AB"[at]}: ${name}`;
    });
    await showDifference(panels);
  }
  a.find();
  showTools();
  showSteps(a.grid);
  await showOpenLayer();
  curveBox.replaceChildren(...await curvesOfGrid(a.grid));
  (state.b ? panelLine : a.box).append(curveBox);
}

let shownView = "";

function showLinks() {
  for (const name of VIEWS) {
    const link = /** @type {HTMLAnchorElement} */ (element(`to-${name}`));
    link.href = addressOf({ ...state, view: name });
    if (name === shownView) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function show() {
  const view = VIEWS.includes(state.view) ? state.view : state.a ? "grids" : "overview";
  const isOpened = view === "grids" && !["", view].includes(shownView);
  if (view !== shownView) unsay();
  shownView = view;
  for (const name of VIEWS) element(`view-${name}`).hidden = name !== view;
  showLinks();
  showFound();
  if (view === "grids") await showGrids();
  else notice("");
  // The button that opened the grid is hidden with its view: keys go on in the grid.
  const { activeElement: focused, body } = document;
  if (isOpened && (!focused || focused === body || focused.closest("[hidden]"))) panels?.a.map.canvas.focus({ preventScroll: true });
  if (view === "overview") await showOverview(element("view-overview"));
  if (view === "curves") await showCurves(element("view-curves"));
  if (view === "runs") await showRuns(element("view-runs"));
}

/** @type {Promise<void>} One thing is drawn after the other. */
let drawn = Promise.resolve();
/** @type {Set<() => Promise<void>>} */
const due = new Set();

/** @param {() => Promise<void>} draw what has changed since it was last called */
function drawNext(draw) {
  due.add(draw);
  delete document.body.dataset.ready;
  drawn = drawn.then(async () => {
    const all = [...due];
    due.clear();
    for (const one of all) await one();
  }).catch((error) => {
    notice(`This view cannot be shown: ${error}`);
    console.error(error);
  }).finally(() => {
    if (!due.size) document.body.dataset.ready = shownView;
  });
}

/** @param {string[]} names */
function someOf(names) {
  const first = names.slice(0, MOST_TASKS).map((name) => cut(name, MOST_NAME)), more = names.length - first.length;
  return first.join(", ") + (more ? ` and ${more} more` : "");
}

const count = (/** @type {number} */ number, /** @type {string} */ word) =>
  `${inWords(number)} ${word}${number === 1 ? "" : "s"}`;
element("summary").textContent = [...(page.sources.length > 1
  ? [`${inWords(page.sources.length)} results: ${someOf(page.sources)}`] : []), count(modelTasks.reduce((sum, tasks, model) =>
  sum + (page.models[model].stage === "ft" ? tasks.size : 1), 0), "model"),
  `${page.tasks.length === 1 ? "task" : "tasks"} ${someOf(page.tasks)}`,
  count(page.grids.filter(isStored).length, "grid"), `${count(page.rows, "row")} of results`].join(" · ");
subscribe(["view", "a", "b", "order", "range", "colours", "show", "measure", "find", "block", "figure"], () => drawNext(show));
subscribe(["layer"], () => {
  showLinks();
  drawNext(showOpenLayer);
});
if (isEmpty && page.views.length && !location.hash) change({ view: "curves" }, true);
else drawNext(show);
