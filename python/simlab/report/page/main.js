/** The view of grids, and what joins the views. */
import { keyOf, modelName, nameOf, ordered, titleOf } from "./axes.js";
import { MAPS, extent, lookup } from "./colours.js";
import { short } from "./csv.js";
import { element, page, planesOf } from "./data.js";
import { Heatmap } from "./heatmap.js";
import { curvesOf, drawCurves, factsOf, legendOf, profileOf } from "./profile.js";
import { blobOf, copy, gridCsv, gridSvg, save } from "./save.js";
import { addressOf, keepState, readState } from "./state.js";
import { button, make, showCurves, showRuns } from "./views.js";

const VIEWS = ["grids", "curves", "runs"];
const ORDERS = { model: "by model", layer: "by layer", clustered: "by clustering" };
const RANGES = { fixed: "fixed for the measure", fitted: "fitted to the grid" };

let state = readState();
/** @type {Map<string, number>} */
const gridOfKey = new Map();
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

/** Hidden models, by the names that links use. */
function hiddenModels() {
  const names = new Set(state.hide.split("~").filter(Boolean));
  return new Set(page.models.flatMap((_, number) => (names.has(modelName(number)) ? [number] : [])));
}

/**
 * Write the changes into the address, and show them.
 * @param {Partial<import("./state.js").State>} changes
 */
function change(changes) {
  state = { ...state, ...changes };
  keepState(state);
  return show();
}

/**
 * @param {string} label
 * @param {[string, string][]} choices value and words
 * @param {string} chosen
 * @param {(value: string) => void} act
 */
function choice(label, choices, chosen, act) {
  const select = make("select");
  for (const [value, words] of choices) {
    const option = make("option", { value }, words);
    option.selected = value === chosen;
    select.append(option);
  }
  select.addEventListener("change", () => act(select.value));
  return make("label", {}, label, select);
}

/** A grid with its own choice of task, kind, measure and models. */
class Panel {
  /**
   * @param {"a" | "b"} name
   * @param {(row: number, column: number) => void} onCursor
   */
  constructor(name, onCursor) {
    this.name = name;
    this.box = make("section", { class: "panel", "aria-label": `Grid ${name.toUpperCase()}` });
    this.choices = make("div", { class: "bar" });
    this.title = make("h2");
    this.place = make("div");
    this.scale = make("div", { class: "scale" });
    this.readout = make("p", { class: "readout", "aria-live": "polite" });
    this.map = new Heatmap(this.place, (row, column) => {
      this.read(row, column);
      onCursor(row, column);
    }, (row, column) => this.open(row, column));
    /** @type {import("./data.js").Planes} */
    this.planes = {};
    this.grid = page.grids[0];
    const file = (/** @type {string} */ end) => `${this.map.shown?.title ?? "grid"}.${end}`;
    this.buttons = make("div", { class: "bar" },
      button("+", () => this.map.zoom(1.5)), button("−", () => this.map.zoom(1 / 1.5)),
      button("Whole grid", () => this.map.zoom(0)),
      button("Copy as CSV", () => this.map.shown
        ? copy(gridCsv(this.map.shown, this.planes), file("csv")) : undefined),
      button("Save as PNG", async () => save(file("png"), await blobOf(this.map.canvas))),
      button("Save as SVG", () => save(file("svg"),
        new Blob([gridSvg(this.map)], { type: "image/svg+xml" }))));
    this.buttons.children[0].setAttribute("aria-label", "Zoom in");
    this.buttons.children[1].setAttribute("aria-label", "Zoom out");
    this.box.append(this.title, this.choices, this.place, this.scale, this.readout, this.buttons);
  }

  /** @param {number} number */
  async show(number) {
    this.grid = page.grids[number];
    const setting = page.settings[this.grid.setting];
    this.planes = await planesOf(this.grid);
    const { value } = this.planes;
    const hidden = hiddenModels();
    const [down, across] = /** @type {const} */ ([0, 1]).map((side) =>
      ordered(this.grid, side, state.order, hidden));
    const range = state.range === "fitted" ? extent(value) : setting.range;
    this.draw(value, down, across, range, lookup(state.colours), titleOf(this.grid));
    this.choose(number);
  }

  /**
   * @param {Float32Array} values
   * @param {import("./axes.js").Layer[]} down
   * @param {import("./axes.js").Layer[]} across
   * @param {[number, number]} range
   * @param {import("./colours.js").Lookup} table
   * @param {string} title
   */
  draw(values, down, across, range, table, title) {
    const stride = page.axes[this.grid.y].reduce((sum, [, layers]) => sum + layers.length, 0);
    const setting = page.settings[this.grid.setting];
    this.title.textContent = title;
    this.map.show({ values, stride, down, across, order: state.order, range, table, title:
      `${title}, ${setting.name}`, outlines: this.grid.blocks ?? [] });
    const some = values.some((value) => Number.isNaN(value));
    this.drawScale(range, table, some ? "grey: undefined" : "");
    if (!this.map.cursor) this.readout.textContent = "";
  }

  /** @param {number} number */
  choose(number) {
    const chosen = page.settings[page.grids[number].setting];
    /** @type {[string, (grid: import("./data.js").Grid) => string][]} */
    const parts = [
      ["Task", ({ setting }) => page.settings[setting].task],
      ["Representation", ({ setting }) => page.settings[setting].kind || "unknown"],
      ["Measure", ({ setting }) => page.settings[setting].name],
      ["Grid", titleOf],
    ];
    let left = page.grids.map((_, at) => at);
    const fields = parts.map(([label, of]) => {
      /** @type {Map<string, number>} */
      const first = new Map();
      for (const at of left) {
        const value = of(page.grids[at]);
        if (!first.has(value)) first.set(value, at);
      }
      const own = of(page.grids[number]);
      const candidates = left;
      left = left.filter((at) => of(page.grids[at]) === own);
      const choices = [...first.keys()].map((value) =>
        /** @type {[string, string]} */ ([value, value]));
      return choice(label, choices, own, (value) => {
        const fitting = candidates.filter((at) => of(page.grids[at]) === value);
        change({ [this.name]: keyOf(page.grids[nearest(fitting, number)]), cell: "" });
      });
    });
    const focused = [...this.choices.querySelectorAll("select")].findIndex((select) =>
      select === document.activeElement);
    this.choices.replaceChildren(...fields);
    if (focused >= 0) this.choices.querySelectorAll("select")[focused]?.focus();
    this.box.dataset.measure = chosen.measure;
  }

  /**
   * @param {[number, number]} range
   * @param {import("./colours.js").Lookup} table
   * @param {string} note
   */
  drawScale([low, high], table, note) {
    const bar = make("canvas", { width: "256", height: "12", "aria-hidden": "true" });
    const context = /** @type {CanvasRenderingContext2D} */ (bar.getContext("2d"));
    for (let step = 0; step < 256; step++) {
      context.fillStyle = `rgb(${table.slice(step * 3, step * 3 + 3)})`;
      context.fillRect(step, 0, 1, 12);
    }
    this.scale.replaceChildren(short(low, 2), bar, short(high, 2), note);
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  read(row, column) {
    const { down, across, stride } = /** @type {import("./heatmap.js").Shown} */ (this.map.shown);
    const at = down[row].at * stride + across[column].at;
    const { value, low, high, pvalue, calibrated } = this.planes;
    const words = [`${nameOf(down[row])} × ${nameOf(across[column])}: ${short(value[at])}`];
    if (low && high && !Number.isNaN(low[at])) {
      words.push(`95 % interval ${short(low[at])} to ${short(high[at])}`);
    }
    if (pvalue && !Number.isNaN(pvalue[at])) words.push(`p ${short(pvalue[at])}`);
    if (calibrated && !Number.isNaN(calibrated[at])) {
      words.push(`calibrated ${short(calibrated[at])}`);
    }
    this.readout.textContent = `${words.join("; ")}; n = ${this.grid.n.toLocaleString("en")}`;
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  open(row, column) {
    const { down, across } = /** @type {import("./heatmap.js").Shown} */ (this.map.shown);
    const layer = down[row];
    change({ layer: `${this.name}~${modelName(layer.model)}~${layer.layer}`,
      cell: `${nameOf(down[row])}~${nameOf(across[column])}` });
  }
}

/**
 * Of several grids the one that is most like another: same comparison, kind, measure.
 * @param {number[]} candidates
 * @param {number} other
 */
function nearest(candidates, other) {
  const grid = page.grids[other], setting = page.settings[grid.setting];
  const score = (/** @type {number} */ at) => {
    const own = page.grids[at], mine = page.settings[own.setting];
    return 8 * Number(mine.task === setting.task) + 4 * Number(mine.kind === setting.kind) +
      2 * Number(titleOf(own) === titleOf(grid)) + Number(mine.name === setting.name);
  };
  return candidates.reduce((best, at) => (score(at) > score(best) ? at : best), candidates[0]);
}

/** Panel A, panel B beside it, and their difference; cursors move together. */
const panels = page.grids.length ? {
  a: new Panel("a", (row, column) => follow("a", row, column)),
  b: new Panel("b", (row, column) => follow("b", row, column)),
} : null;
/** @type {Panel | null} */
let difference = null;
const tools = make("div", { class: "bar" });
const models = make("details");
const layerBox = make("div", { class: "panel" });

/**
 * @param {string} name
 * @param {number} row
 * @param {number} column
 */
function follow(name, row, column) {
  for (const panel of [panels?.a, panels?.b, difference]) {
    if (!panel || panel.name === name || panel.box.hidden || !panel.map.shown) continue;
    const { down, across } = panel.map.shown;
    if (row >= down.length || column >= across.length) continue;
    panel.map.moveTo(row, column, false);
    panel.read(row, column);
  }
}

function showTools() {
  const compare = make("input", { type: "checkbox" });
  compare.checked = state.b !== "";
  compare.addEventListener("change", () => {
    const number = gridOfKey.get(state.a) ?? 0;
    const next = page.grids[(number + 1) % page.grids.length];
    change({ b: compare.checked ? keyOf(next) : "" });
  });
  const pairs = (/** @type {Record<string, string>} */ words) => Object.entries(words);
  tools.replaceChildren(
    choice("Order", pairs(ORDERS), state.order, (order) => change({ order })),
    choice("Colour range", pairs(RANGES), state.range, (range) => change({ range })),
    choice("Colours", MAPS.map((name) => [name, name]), state.colours,
      (colours) => change({ colours })),
    make("label", { class: "check" }, compare, "Compare with a second grid"));
}

/** @param {number[]} shown the models of the grids */
function showModels(shown) {
  const hidden = hiddenModels();
  const open = models.open;
  const filter = make("input", { type: "search", "aria-label": "Find a model" });
  const list = make("div", { class: "models" });
  const setHidden = (/** @type {Set<number>} */ numbers) =>
    change({ hide: [...numbers].map(modelName).join("~") });
  for (const number of shown) {
    const box = make("input", { type: "checkbox" });
    box.checked = !hidden.has(number);
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(number);
      else hidden.add(number);
      setHidden(hidden);
    });
    list.append(make("label", {}, box, modelName(number)));
  }
  const visible = () => shown.filter((number) =>
    modelName(number).toLowerCase().includes(filter.value.toLowerCase()));
  filter.addEventListener("input", () => {
    const found = new Set(visible());
    shown.forEach((number, at) => {
      /** @type {HTMLElement} */ (list.children[at]).hidden = !found.has(number);
    });
  });
  models.replaceChildren(make("summary", {}, "Models and seeds that joint grids show"),
    make("div", { class: "bar" }, filter,
      button("Only these", () => {
        const found = new Set(visible());
        setHidden(new Set(shown.filter((number) => !found.has(number))));
      }),
      button("All", () => setHidden(new Set()))), list);
  models.open = open;
  models.hidden = shown.length < 3;
}

async function showDifference() {
  const { a, b } = /** @type {NonNullable<typeof panels>} */ (panels);
  const one = /** @type {import("./heatmap.js").Shown} */ (a.map.shown);
  const other = /** @type {import("./heatmap.js").Shown} */ (b.map.shown);
  difference ??= new Panel("a", () => undefined);
  const fits = one.down.length === other.down.length && one.across.length === other.across.length;
  difference.box.hidden = !fits;
  notice(fits ? "" : `The difference needs grids of one size: A is ${one.down.length} × ` +
    `${one.across.length}, B is ${other.down.length} × ${other.across.length}.`);
  if (!fits) return;
  const panel = difference;
  panel.grid = a.grid;
  const values = new Float32Array(one.values.length).fill(NaN);
  let most = 0;
  one.down.forEach((row, r) => one.across.forEach((column, c) => {
    const at = row.at * one.stride + column.at;
    values[at] = one.values[at] - b.map.valueAt(r, c);
    if (Math.abs(values[at]) > most) most = Math.abs(values[at]);
  }));
  panel.planes = { value: values };
  panel.map.onCursor = (row, column) => {
    panel.read(row, column);
    follow("difference", row, column);
  };
  panel.name = /** @type {"a"} */ ("difference");
  panel.map.onOpen = (row, column) => a.open(row, column);
  panel.draw(values, one.down, one.across, [-most || -1, most || 1], lookup("difference"),
    `A − B: ${titleOf(a.grid)} − ${titleOf(b.grid)}`);
  panel.box.setAttribute("aria-label", "Difference");
}

async function showLayer() {
  const [name, model, layer] = state.layer.split("~");
  const number = page.models.findIndex((_, at) => modelName(at) === model);
  if (!panels || number < 0) {
    layerBox.replaceChildren();
    layerBox.hidden = true;
    return;
  }
  const { grid } = name === "b" && state.b ? panels.b : panels.a;
  const { setting } = grid;
  const profile = await profileOf(setting, number, Number(layer));
  const curves = curvesOf(profile, number);
  const title = nameOf({ model: number, layer: Number(layer), at: 0 });
  const known = factsOf(number, Number(layer)).map(([task, , , what, value, low, high]) =>
    make("li", {}, `${what} (${task}): ${short(value)}` +
      (low === null ? "" : `, 95 % interval ${short(low)} to ${short(high)}`)));
  const box = make("section", { class: "layer", "aria-label": `Layer ${title}` },
    make("div", { class: "head" }, make("h2", {}, title),
      button("Close", () => { change({ layer: "" }); })),
    make("div", { class: "parts" },
      make("div", {}, make("h3", {}, `${page.settings[setting].name} with every layer`),
        drawCurves(curves, `${page.settings[setting].name} of ${title} with every layer`),
        legendOf(curves)),
      make("div", {}, make("h3", {}, "The layer alone"), known.length ? make("ul", {}, ...known)
        : make("p", { class: "hint" }, "The results hold no localization, truncation or " +
          "skipping of this layer."))));
  layerBox.replaceChildren(box);
  layerBox.hidden = false;
}

async function showGrids() {
  const place = element("view-grids");
  if (!panels) {
    if (!place.childElementCount) place.append(make("p", {}, "The results hold no grids."));
    return;
  }
  const { a, b } = panels;
  if (!place.childElementCount) {
    difference = new Panel("a", () => undefined);
    const line = make("div", { class: "panels" }, a.box, b.box, difference.box, layerBox);
    place.append(tools, models, line, make("p", { class: "hint" },
      "Click a cell, or press Enter on it, to open the layer of its row. Arrow keys move the " +
      "cursor, with Shift by ten; + and − zoom, as do two fingers and the wheel with Ctrl; a " +
      "grid that is zoomed in is dragged."));
  }
  const wanted = { a: gridOfKey.get(state.a) ?? 0, b: gridOfKey.get(state.b) ?? 0 };
  const lost = [state.a, state.b].some((key) => key && !gridOfKey.has(key));
  notice(lost ? "The link names a grid that this page does not have; another one is shown." : "");
  b.box.hidden = !state.b;
  if (difference) difference.box.hidden = !state.b;
  await a.show(wanted.a);
  if (state.b) {
    await b.show(wanted.b);
    await showDifference();
  }
  showTools();
  const grids = [a.grid, ...(state.b ? [b.grid] : [])];
  const shown = grids.flatMap(({ x, y }) => [...page.axes[x], ...page.axes[y]]);
  showModels([...new Set(shown.map(([model]) => model))].sort((m, n) => m - n));
  await showLayer();
}

async function show() {
  if (!VIEWS.includes(state.view)) state.view = "grids";
  for (const view of VIEWS) {
    element(`view-${view}`).hidden = view !== state.view;
    const link = /** @type {HTMLAnchorElement} */ (element(`to-${view}`));
    link.href = addressOf({ ...state, view });
    if (view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (state.view === "grids") await showGrids();
  else notice("");
  if (state.view === "curves") showCurves(element("view-curves"));
  if (state.view === "runs") showRuns(element("view-runs"));
  document.body.dataset.ready = state.view;
}

addEventListener("hashchange", () => {
  state = readState();
  show();
});
const count = (/** @type {number} */ number, /** @type {string} */ word) =>
  `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
element("summary").textContent = [count(page.models.length, "model"),
  `${page.tasks.length === 1 ? "task" : "tasks"} ${page.tasks.join(", ")}`,
  count(page.grids.length, "grid"), count(page.rows, "row")].join(" · ");
if (!page.grids.length && page.views.length && !location.hash) state.view = "curves";
show();
