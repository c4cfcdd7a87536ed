/** A grid with its own choice of task, kind, measure and models. */
import { captionOf, isJoint, keyOf, layersOf, nameOf, modelName, ordered, rowsOf, titleOf } from "./axes.js";
import { framedBlocks, framesLegend } from "./blocks.js";
import { fitted, lookup } from "./colours.js";
import { short } from "./csv.js";
import { page, settingOf } from "./data.js";
import { hiddenModels, isFound } from "./filter.js";
import { Heatmap } from "./heatmap.js";
import { Choice, button, colourBar, foldedIfSmall, make, tell } from "./make.js";
import { svgOf } from "./picture.js";
import { fileButtons, gridCsv, gridPicture } from "./save.js";
import { planesOf } from "./seeds.js";
import { PLANES, beyondWords, dotsOf, fewWords, planeRange, planeTitle, shownPlane, testWords, withWidth, wordsOf } from "./shown.js";
import { change, joined, keep, split, state } from "./state.js";

/** @typedef {import("./heatmap.js").Shown} Shown */

const MOST_OPTIONS = 200; // of a drop-down
/** @type {[string, (grid: import("./data.js").Grid) => string][]} What a grid is chosen by, and its name there. */
const FIELDS = [
  ["Task", ({ setting }) => page.settings[setting].task],
  ["Representation", ({ setting }) => page.settings[setting].kind || "unknown"],
  ["Measure", ({ setting }) => page.settings[setting].name],
  ["Grid", titleOf],
];
const PAUSE = 300; // milliseconds without a move after which the address is written

export class Panel {
  title = make("h2");
  caption = make("p", "caption");
  about = make("p", "hint");
  head = make("div", "headline", this.title, this.caption, this.about);
  place = make("div", "place");
  scale = make("div", "scale");
  readout = make("p", { class: "readout", "aria-live": "polite" });
  later = 0;
  /** @type {import("./data.js").Planes} */
  planes = {};
  plane = ""; // that is shown
  grid = page.grids[0];
  /** @type {number[][]} grids that each field chooses from */
  candidates = FIELDS.map(() => []);
  fields = FIELDS.map(([label, of], at) => new Choice(label, (value) => {
    const fitting = this.candidates[at].filter((number) => of(page.grids[number]) === value);
    const chosen = page.grids[nearest(fitting, this.grid)], [own, other] = [this.grid, chosen].map(settingOf);
    change({ [this.name]: keyOf(chosen) });
    if (label !== "Measure" && own.name !== other.name) tell(`The measure is now ${other.name}: ${value} has no ${own.name}.`, this.choices);
  }));
  choices = make("div", "choices");
  /** @type {Panel | null} the panel whose values are taken away */
  minus = null;
  /** @type {Uint8Array | undefined} cells with a dot, and why */
  dots = undefined;
  dotted = "";
  undefined = ""; // why cells are hatched
  /** @type {string[][]} what is to be known of the picture, and its colour */
  notes = [];
  bar = ""; // the title of the colours

  /**
   * @param {"a" | "b" | "difference"} name
   * @param {string} label
   * @param {(panel: Panel, row: number, column: number) => void} onCursor
   * @param {(panel: Panel) => void} onSight called when it was zoomed or panned
   */
  constructor(name, label, onCursor, onSight) {
    this.name = name;
    this.box = make("section", { class: "panel grids", "aria-label": label });
    if (name !== "difference") {
      this.choices.append(foldedIfSmall("Task, representation, measure, grid",
        make("div", "bar", ...this.fields.map(({ box }) => box))));
    }
    this.map = new Heatmap(this.place, (row, column) => {
      this.map.say(this.read(row, column).slice(0, 3));
      onCursor(this, row, column);
      this.remember();
    }, (row, column) => this.open(row, column));
    this.map.onMove = () => {
      this.remember();
      onSight(this);
    };
    this.buttons = make("div", "bar buttons",
      make("span", "zooms", // one zoom for grids beside each other
        button("+", () => this.map.zoom(1.5), "Zoom in"),
        button("−", () => this.map.zoom(1 / 1.5), "Zoom out"),
        button("Whole grid", () => this.map.zoom(0))),
      ...fileButtons(() => this.shown().title, () => svgOf(gridPicture(this.map, this.bar, this.notes)),
        () => gridCsv(this.shown(), this.planes, this.grid,
          this.minus && { shown: this.minus.shown(), grid: this.minus.grid }),
        " label_x and layer_x are of the row, label_y and layer_y of the column."));
    this.box.append(this.head, this.choices, this.place, this.readout, this.scale, this.buttons);
  }

  shown() {
    return /** @type {Shown} */ (this.map.shown);
  }

  /**
   * @param {number} number
   * @param {import("./data.js").Grid} [guide] the grid whose clustering is followed
   */
  async show(number, guide = page.grids[number]) {
    this.grid = page.grids[number];
    this.planes = withWidth(await planesOf(this.grid));
    const plane = this.plane = shownPlane(this.planes, state.show), value = this.planes[plane];
    const hidden = hiddenModels();
    const [down, across] = /** @type {const} */ ([0, 1]).map((side) =>
      ordered(this.grid, guide, side, state.order, hidden));
    this.undefined = plane === "sd" ? "undefined, or of one seed alone"
      : settingOf(this.grid).undefined.replace("Grey: ", "");
    const { about, manual } = settingOf(this.grid);
    this.about.textContent = [about && `${about}.`, manual && `How it is computed: simcore’s ${manual}.md`].filter(Boolean).join(" ");
    const usual = await planeRange(this.grid, plane);
    const range = state.range === "fitted" ? fitted(value, usual) : usual;
    const title = titleOf(this.grid) + (plane === "value" ? "" : `: ${PLANES[plane]}`);
    this.dots = dotsOf(this.planes, plane);
    this.dotted = plane === "mean" ? "p > .05 in half of the seeds or more" : "p > .05";
    this.bar = planeTitle(this.grid, plane);
    this.draw(value, down, across, range, lookup(state.colours), title, captionOf(this.grid));
    this.choose(number);
  }

  /**
   * @param {Float32Array} values
   * @param {import("./axes.js").Layer[]} down
   * @param {import("./axes.js").Layer[]} across
   * @param {[number, number]} range
   * @param {import("./colours.js").Lookup} table
   * @param {string} title
   * @param {string} caption
   */
  draw(values, down, across, range, table, title, caption) {
    this.title.textContent = title;
    this.caption.textContent = caption;
    this.map.show({ values, stride: layersOf(this.grid.y).length, down, across,
      order: state.order, range, table, outlines: framedBlocks(this.grid),
      title: `${title}, ${caption}`, ...(this.dots && { dots: this.dots }),
      ...(["sd", "width"].includes(this.plane) && { digits: 3 }),
      ...(this.minus && { minus: [this.minus.shown().down, this.minus.shown().across] }) });
    this.notes = [];
    /** @type {HTMLElement[]} */
    const legend = [];
    const add = (/** @type {string} */ sign, /** @type {string} */ words, /** @type {HTMLElement[]} */ buttons = []) => {
      this.notes.push([`${sign[0].toUpperCase()}${sign.slice(1)}: ${words}`]);
      legend.push(make("span", "key", make("i", { class: sign, "aria-hidden": "true" }), words), ...(buttons.length ? [make("div", "bar", ...buttons)] : []));
    };
    if (values.some(isNaN)) add("hatched", this.undefined);
    if (this.map.frames.length) {
      const [words, buttons] = framesLegend(this.grid);
      add("framed", `${words}${isJoint(this.grid) ? "" : `; ${testWords(this.grid)}`}`, buttons);
    }
    if (this.dots?.some(Boolean)) add("dotted", this.dotted);
    const beyond = this.plane === "pvalue" ? "" : beyondWords(values, range); // its title says ".1 or more"
    const few = this.minus ? "" : fewWords(settingOf(this.grid), this.grid.n); // A and B say it
    for (const said of [beyond, few].filter(Boolean)) {
      this.notes.push([said]);
      legend.push(make("span", "key", said));
    }
    const { words, names } = this.map.strips;
    if (words) {
      this.notes.push([words], ...names.map(([name, colour]) => [`■ ${name}`, colour]));
      legend.push(make("span", "key", words), ...names.map(([name, colour]) => {
        const sign = make("i");
        sign.style.background = colour;
        return make("span", "key", sign, name);
      }));
    }
    this.scale.replaceChildren(make("b", {}, this.bar), short(range[0], 2), colourBar(table),
      make("span", {}, short(range[1], 2)), ...legend);
    const { cursor } = this.map;
    if (cursor) this.read(...cursor);
    else this.readout.textContent = "Point at a cell, or tap it, to read it.";
  }

  /** Move the cursor to the cell that the address names. */
  find() {
    if (!state.cell || (this.map.cursor && this.cellName() === state.cell)) return;
    const { down, across } = this.shown(), [row, column] = split(state.cell);
    const place = [down.findIndex((layer) => nameOf(layer) === row),
      across.findIndex((layer) => nameOf(layer) === column)];
    const sight = split(state.zoom).map(Number);
    if (!this.map.cursor && sight[0] > 1) this.map.look(sight);
    if (place[0] >= 0 && place[1] >= 0) this.map.moveTo(place[0], place[1]);
    this.map.tip.hidden = true; // nobody points
  }

  /** Write the cursor and the zoom into the address, when they have come to rest. */
  remember() {
    clearTimeout(this.later);
    if (this.name !== "a") return;
    this.later = setTimeout(() => {
      const sight = this.map.sight().map((number) => Number(number.toPrecision(6)));
      keep({ zoom: sight[0] > 1 ? joined(sight) : "1",
        ...(this.map.cursor && { cell: this.cellName() }) });
    }, PAUSE);
  }

  cellName() {
    const { down, across } = this.shown(), [row, column] = this.map.cursor ?? [0, 0];
    return joined([nameOf(down[row]), nameOf(across[column])]);
  }

  /** @param {number} number */
  choose(number) {
    let left = page.grids.map((_, at) => at).filter((at) => at === number || isFound(page.grids[at]));
    FIELDS.forEach(([, of], field) => {
      const choices = [...new Set(left.map((at) => of(page.grids[at])))], own = of(page.grids[number]);
      this.candidates[field] = left;
      left = left.filter((at) => of(page.grids[at]) === own);
      const first = choices.slice(0, MOST_OPTIONS);
      if (!first.includes(own)) first.unshift(own);
      this.fields[field].set(first.map((value) => [value, value]), own,
        choices.length > first.length ? "… more: use the filter" : "");
    });
  }

  /**
   * Say what the results know of a cell.
   * @param {number} row
   * @param {number} column
   */
  read(row, column) {
    const { down, across, stride } = this.shown(), at = down[row].at * stride + across[column].at;
    const cell = `${nameOf(down[row])} × ${nameOf(across[column])}`, other = this.minus?.map.shown;
    const taken = other && `${nameOf(other.down[row])} × ${nameOf(other.across[column])}`;
    const [first, ...words] = wordsOf(this.planes, at);
    words.unshift(`${cell}${taken && taken !== cell ? ` − ${taken}` : ""}: ${first}`);
    const rows = new Set([this, this.minus].flatMap((panel) => (panel ? rowsOf(panel.grid) : [])));
    this.readout.textContent = [...words, ...rows].join("; ");
    return [cell, first, ...words.slice(1)];
  }

  /**
   * Open the layer of a row.
   * @param {number} row
   * @param {number} column
   */
  open(row, column) {
    const { down, across } = this.shown(), { model, layer } = down[row];
    change({ layer: joined([this.name === "b" ? "b" : "a", modelName(model), layer]),
      cell: joined([nameOf(down[row]), nameOf(across[column])]) });
    tell(`${nameOf(down[row])} is open beside or below its grid.`, this.buttons);
  }
}

/**
 * Of several grids the one that is most like another: same task, kind, models, measure.
 * @param {number[]} candidates
 * @param {import("./data.js").Grid} grid
 */
function nearest(candidates, grid) {
  const setting = settingOf(grid);
  const score = (/** @type {number} */ at) => {
    const own = page.grids[at], mine = page.settings[own.setting];
    return 8 * Number(mine.task === setting.task) + 4 * Number(mine.kind === setting.kind) +
      2 * Number(titleOf(own) === titleOf(grid)) + Number(mine.name === setting.name);
  };
  return candidates.reduce((best, at) => (score(at) > score(best) ? at : best), candidates[0]);
}
