/**
 * A grid of numbers on a canvas: pan, zoom, a cursor that mouse, touch and keys move. Row 0, the lowest
 * layer, is at the bottom.
 */
import { groupsOf, modelName } from "./axes.js";
import { clamp } from "./csv.js";
import { make } from "./make.js";
import { TREE, framesOf, gridMarks, paintCells, stripsOf } from "./paint.js";
import { paintMarks, widthOf } from "./picture.js";
import { listen } from "./pointer.js";
import { CellTable } from "./table.js";

/**
 * @typedef {import("./axes.js").Layer} Layer
 * @typedef {{values: Float32Array, stride: number, down: Layer[], across: Layer[], order: string,
 *   range: [number, number], table: import("./colours.js").Lookup,
 *   outlines: import("./data.js").Block[], title: string, dots?: Uint8Array, minus?: Layer[][],
 *   digits?: number}} Shown
 * `values` are those of the stored grid, whose rows have `stride` entries; `dots` marks some of them;
 * `minus` are the layers down and across of the grid that is taken away.
 */

const MOST_MARGIN = 130;
const MOST_ZOOM = 64; // pixels of a cell
const LEAST_TIP = 150, MOST_TIP = 300; // pixels of words beside a grid

export class Heatmap {
  /** Called when the grid was zoomed or panned. */
  onMove = () => {};
  canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "heatmap" });
  table = new CellTable();
  tip = make("div", { class: "tip", "aria-hidden": "true", hidden: "" }); // the readout says it
  box = make("div", "grid", this.canvas, this.table.box, this.tip);
  /** @type {Shown | null} */
  shown = null;
  /** @type {{down: import("./axes.js").Group[], across: import("./axes.js").Group[]}} */
  groups = { down: [], across: [] };
  /** @type {import("./paint.js").Frame[]} */
  frames = [];
  /** @type {[number, number] | null} */
  cursor = null;
  fit = 1; // pixels of a cell when the whole grid is shown
  cell = 1;
  left = 0; // what is scrolled away, in pixels
  top = 0;
  least = 0; // pixels of the left margin, which panels beside each other share
  margin = { left: 0, top: 0, right: 0, bottom: 0 };
  tree = 0; // pixels of the trees of clusterings
  strips = stripsOf([]);
  size = { width: 0, height: 0 }; // of the cells that can be seen
  pending = false;
  cells = make("canvas"); // one pixel a cell
  light = false;

  /**
   * @param {HTMLElement} place
   * @param {(row: number, column: number) => void} onCursor called with places in the shown order
   * @param {(row: number, column: number) => void} onOpen
   */
  constructor(place, onCursor, onOpen) {
    this.place = place;
    this.onCursor = onCursor;
    this.onOpen = onOpen;
    this.canvas.onpointerleave = this.canvas.onblur = () => { this.tip.hidden = true; };
    place.append(this.box);
    new ResizeObserver(() => this.layOut()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => this.forPrint(true));
    addEventListener("afterprint", () => this.forPrint(false));
    listen(this);
  }

  /** @param {Shown} shown */
  show(shown) {
    const before = this.shown, { down, across } = shown;
    this.shown = shown;
    if (before?.down.length !== down.length || before.across.length !== across.length) {
      this.cursor = null;
      this.cell = 0;
    }
    this.groups = { down: groupsOf(down, shown.order, shown.minus?.[0]), across: groupsOf(across, shown.order, shown.minus?.[1]) };
    this.frames = framesOf(shown);
    this.strips = stripsOf([down, across]);
    this.tree = [down, across].some(([{ join }]) => join !== undefined) ? TREE : 0;
    this.canvas.setAttribute("aria-label", `${shown.title}: ${down.length} rows, ` +
      `${across.length} columns. Arrow keys move the cursor, Enter opens the layer.`);
    paintCells(this.cells, shown);
    this.layOut();
    this.table.write(shown, this.cursor?.[0] ?? 0);
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  valueAt(row, column) {
    const { values, stride, down, across } = /** @type {Shown} */ (this.shown);
    return values[down[row].at * stride + across[column].at];
  }

  /**
   * Where a row begins, in cells below the upper edge of the grid.
   * @param {number} row
   */
  above = (row) => /** @type {Shown} */ (this.shown).down.length - 1 - row;

  /**
   * Show words in the row of the cursor, beside the grid, where they cover no cell; if it has no room there, beside
   * the cell, where they cover neither its row nor its column. Inside the window.
   * @param {string[]} lines
   */
  say(lines) {
    const [row, column] = this.cursor ?? [0, 0], { tip, cell, margin } = this;
    const end = margin.left + this.size.width + margin.right + 6, room = this.place.clientWidth - end;
    tip.hidden = false;
    tip.style.maxWidth = room < LEAST_TIP ? "" : `${Math.min(room, MOST_TIP)}px`;
    tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
    const place = this.box.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = tip;
    const x = margin.left + column * cell - this.left, y = margin.top + this.above(row) * cell - this.top;
    const isBeside = room >= LEAST_TIP, right = isBeside ? end : x + cell + 10, below = isBeside ? y : y + cell + 10;
    const left = isBeside || place.left + right + width < document.documentElement.clientWidth ? right : x - width - 10;
    const top = place.top + below + height < innerHeight ? below : y + (isBeside ? cell : -10) - height;
    tip.style.left = `${Math.max(left, 4 - place.left)}px`;
    tip.style.top = `${Math.max(top, 4 - place.top)}px`;
  }

  layOut() {
    if (!this.shown || !this.place.clientWidth) return;
    const { down, across } = this.shown, zoomed = this.cell / this.fit, { groups } = this;
    const named = groups.down.length ? groups.down.map(({ name }) => name)
      : [...new Set(down.map(({ model }) => modelName(model)))];
    const longest = named.reduce((most, name) => Math.max(most, widthOf(name)), 34);
    const { tree, strips } = this;
    const room = Math.max(Math.min(longest + 34, MOST_MARGIN, this.place.clientWidth / 3) + strips.width, this.least);
    this.margin = { left: Math.ceil(room), top: 6 + tree, right: 4 + tree,
      bottom: (groups.across.length ? 38 : 22) + strips.width };
    const width = this.place.clientWidth - this.margin.left - this.margin.right;
    const most = Math.max(240, Math.min(innerHeight * 0.72, 760));
    this.fit = Math.max(Math.min(width / across.length, most / down.length, MOST_ZOOM), 0.05);
    this.cell = zoomed < 1.01 ? this.fit : Math.min(this.fit * zoomed, MOST_ZOOM);
    this.size = {
      width: Math.min(width, this.fit * across.length),
      height: Math.min(most, this.fit * down.length),
    };
    const ratio = devicePixelRatio || 1;
    const whole = [this.margin.left + this.size.width + this.margin.right,
      this.margin.top + this.size.height + this.margin.bottom];
    this.canvas.width = Math.round(whole[0] * ratio);
    this.canvas.height = Math.round(whole[1] * ratio);
    this.canvas.style.width = `${whole[0]}px`;
    this.canvas.style.height = `${whole[1]}px`;
    this.keepInside();
    this.drawNow();
  }

  isZoomed() {
    return this.cell > this.fit * 1.01;
  }

  keepInside() {
    const { down, across } = /** @type {Shown} */ (this.shown);
    this.left = clamp(this.left, 0, Math.max(across.length * this.cell - this.size.width, 0));
    const most = Math.max(down.length * this.cell - this.size.height, 0);
    this.top = clamp(this.top, 0, most);
    this.box.classList.toggle("zoomed", this.isZoomed());
    const ends = [...(this.top <= 0 ? ["pan-up"] : []), ...(this.top >= most - 1 ? ["pan-down"] : [])];
    // A finger that drags beyond an end of the grid scrolls the page.
    this.box.style.touchAction = this.isZoomed() ? ends.join(" ") || "none" : "";
  }

  /** @param {boolean} printing */
  forPrint(printing) {
    this.light = printing;
    this.drawNow();
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.drawNow();
    });
  }

  drawNow() {
    if (!this.shown || !this.place.clientWidth) return;
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const ratio = devicePixelRatio || 1, style = getComputedStyle(this.place);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    paintMarks(context, gridMarks(this, this.shown, this.light ? "#000" : colour("text")),
      this.light ? "#888 #eee" : `${colour("missing")} ${colour("raised")}`);
  }

  /**
   * @param {number} row
   * @param {number} column
   * @param {boolean} [tell] whether `onCursor` is called
   * @param {number} [pause] milliseconds without a move after which the table is written: the row
   *   of a large grid takes longer than a frame
   */
  moveTo(row, column, tell = true, pause = 0) {
    if (!this.shown) return;
    const { down, across } = this.shown;
    this.cursor = [clamp(row, 0, down.length - 1), clamp(column, 0, across.length - 1)];
    const see = (/** @type {number} */ place, /** @type {number} */ at,
      /** @type {number} */ room) =>
      clamp(at, (place + 1) * this.cell - room, place * this.cell);
    this.top = see(this.above(this.cursor[0]), this.top, this.size.height);
    this.left = see(this.cursor[1], this.left, this.size.width);
    this.keepInside();
    this.draw();
    this.table.follow(this.shown, this.cursor[0], pause);
    if (tell) this.onCursor(...this.cursor);
  }

  /**
   * Move what is seen, if the grid is zoomed in.
   * @param {number} x
   * @param {number} y
   */
  pan(x, y) {
    if (!this.shown || !this.isZoomed()) return;
    this.left += x;
    this.top += y;
    this.keepInside();
    this.draw();
    this.onMove();
  }

  /**
   * @param {number} factor
   * @param {number} [x] what stays in place, in pixels of the cells
   * @param {number} [y]
   */
  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const cell = clamp(this.cell * factor, this.fit, Math.max(MOST_ZOOM, this.fit));
    this.left = ((this.left + x) / this.cell) * cell - x;
    this.top = ((this.top + y) / this.cell) * cell - y;
    this.cell = cell;
    this.keepInside();
    this.draw();
    this.onMove();
  }

  /** What is seen, as numbers that `look` takes: the zoom, and the first column and row. */
  sight() {
    return [this.cell / this.fit, this.left / this.cell, this.top / this.cell];
  }

  /** @param {number[]} sight */
  look([zoom, left, top]) {
    if (isNaN(zoom + left + top)) return;
    this.cell = Math.min(this.fit * zoom, Math.max(MOST_ZOOM, this.fit));
    this.left = left * this.cell;
    this.top = top * this.cell;
    this.keepInside();
    this.draw();
  }
}
