/** A grid of numbers on a canvas: pan, zoom, a cursor that mouse, touch and keys move. */
import { groupsOf, layerName, nameOf } from "./axes.js";
import { inkOn, stepOf } from "./colours.js";
import { short } from "./csv.js";

/**
 * @typedef {import("./axes.js").Layer} Layer
 * @typedef {{values: Float32Array, stride: number, down: Layer[], across: Layer[], order: string,
 *   range: [number, number], table: import("./colours.js").Lookup, outlines: number[][],
 *   title: string}} Shown
 * `values` are those of the stored grid, whose rows have `stride` entries.
 */

const LETTER = 11; // pixels of a label
const MOST_MARGIN = 130;
const LEAST_FOR_VALUES = 27; // pixels of a cell that a value fits into
const MOST_ZOOM = 64; // pixels of a cell
const WHOLE_TABLE = 30; // rows and columns of a table that is written out

export class Heatmap {
  /**
   * @param {HTMLElement} place
   * @param {(row: number, column: number) => void} onCursor called with places in the shown order
   * @param {(row: number, column: number) => void} onOpen
   */
  constructor(place, onCursor, onOpen) {
    this.place = place;
    this.onCursor = onCursor;
    this.onOpen = onOpen;
    this.box = document.createElement("div");
    this.box.className = "grid";
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "heatmap");
    this.table = document.createElement("div");
    this.table.className = "hidden";
    this.box.append(this.canvas, this.table);
    place.append(this.box);
    /** @type {Shown | null} */
    this.shown = null;
    /** @type {[number, number] | null} */
    this.cursor = null;
    this.fit = 1; // pixels of a cell when the whole grid is shown
    this.cell = 1;
    this.left = 0; // what is scrolled away, in pixels
    this.top = 0;
    this.margin = { left: 0, top: 0 };
    this.size = { width: 0, height: 0 }; // of the cells that can be seen
    this.pending = false;
    this.cells = document.createElement("canvas"); // one pixel a cell
    this.light = false;
    new ResizeObserver(() => this.layOut()).observe(place);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => this.forPrint(true));
    addEventListener("afterprint", () => this.forPrint(false));
    this.listen();
  }

  /** @param {Shown} shown */
  show(shown) {
    const before = this.shown;
    const same = before && before.down.length === shown.down.length &&
      before.across.length === shown.across.length;
    this.shown = shown;
    if (!same) {
      this.cursor = null;
      this.cell = 0;
    }
    const { down, across } = shown;
    this.canvas.setAttribute("aria-label", `${shown.title}: ${down.length} rows, ` +
      `${across.length} columns. Arrow keys move the cursor, Enter opens the layer.`);
    this.paintCells();
    this.layOut();
    this.writeTable();
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  valueAt(row, column) {
    const { values, stride, down, across } = /** @type {Shown} */ (this.shown);
    return values[down[row].at * stride + across[column].at];
  }

  /** Make the picture that has one pixel for each cell. */
  paintCells() {
    const { down, across, range, table, values, stride } = /** @type {Shown} */ (this.shown);
    this.cells.width = across.length;
    this.cells.height = down.length;
    const context = /** @type {CanvasRenderingContext2D} */ (this.cells.getContext("2d"));
    const image = context.createImageData(across.length, down.length);
    let at = 0;
    for (const { at: row } of down) {
      for (const { at: column } of across) {
        const value = values[row * stride + column];
        if (!Number.isNaN(value)) {
          const step = stepOf(value, range) * 3;
          image.data[at] = table[step];
          image.data[at + 1] = table[step + 1];
          image.data[at + 2] = table[step + 2];
          image.data[at + 3] = 255;
        }
        at += 4;
      }
    }
    context.putImageData(image, 0, 0);
  }

  layOut() {
    if (!this.shown || !this.place.clientWidth) return;
    const { down, across, order } = this.shown;
    const context = this.context();
    const names = groupsOf(down, order).map(({ name }) => context.measureText(name).width);
    const room = Math.min(Math.max(34, ...names) + 30, MOST_MARGIN, this.place.clientWidth / 3);
    this.margin = { left: Math.ceil(room), top: order === "clustered" ? 6 : 38 };
    const width = this.place.clientWidth - this.margin.left - 4;
    const most = Math.max(240, Math.min(innerHeight * 0.75, 760));
    this.fit = Math.max(Math.min(width / across.length, most / down.length, MOST_ZOOM), 0.05);
    this.cell = Math.max(this.cell, this.fit);
    if (this.cell < this.fit * 1.01) this.cell = this.fit;
    this.size = {
      width: Math.min(width, this.fit * across.length),
      height: Math.min(most, this.fit * down.length),
    };
    const ratio = devicePixelRatio || 1;
    const whole = [this.margin.left + this.size.width + 4, this.margin.top + this.size.height + 4];
    this.canvas.width = Math.round(whole[0] * ratio);
    this.canvas.height = Math.round(whole[1] * ratio);
    this.canvas.style.width = `${whole[0]}px`;
    this.canvas.style.height = `${whole[1]}px`;
    this.keepInside();
    this.drawNow();
  }

  context() {
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    context.font = `${LETTER}px system-ui, sans-serif`;
    return context;
  }

  keepInside() {
    const { down, across } = /** @type {Shown} */ (this.shown);
    const inside = (/** @type {number} */ at, /** @type {number} */ most) =>
      Math.min(Math.max(at, 0), Math.max(most, 0));
    this.left = inside(this.left, across.length * this.cell - this.size.width);
    this.top = inside(this.top, down.length * this.cell - this.size.height);
    this.box.classList.toggle("zoomed", this.cell > this.fit * 1.01);
  }

  /** @param {boolean} printing */
  forPrint(printing) {
    this.light = printing;
    if (this.shown && this.place.clientWidth) this.drawNow();
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.shown && this.place.clientWidth) this.drawNow();
    });
  }

  drawNow() {
    const { down, across } = /** @type {Shown} */ (this.shown);
    const context = this.context();
    const { margin, size, cell } = this;
    const ratio = devicePixelRatio || 1;
    const style = getComputedStyle(this.place);
    const text = this.light ? "#000" : style.getPropertyValue("--text");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, margin.left + size.width + 4, margin.top + size.height + 4);
    context.save();
    context.translate(margin.left, margin.top);
    context.beginPath();
    context.rect(0, 0, size.width, size.height);
    context.clip();
    context.fillStyle = this.light ? "#ccc" : style.getPropertyValue("--missing");
    context.fillRect(0, 0, size.width, size.height);
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(this.cells, this.left / cell, this.top / cell, size.width / cell,
      size.height / cell, 0, 0, size.width, size.height);
    this.drawValues(context);
    this.drawGroups(context);
    this.drawOutlines(context);
    this.drawCursor(context);
    context.restore();
    context.fillStyle = text;
    this.drawLabels(context, down, 0);
    this.drawLabels(context, across, 1);
  }

  /** The rows and columns that can be seen. */
  window() {
    const { down, across } = /** @type {Shown} */ (this.shown);
    const { cell, size } = this;
    return {
      rows: [Math.floor(this.top / cell),
        Math.min(Math.ceil((this.top + size.height) / cell), down.length)],
      columns: [Math.floor(this.left / cell),
        Math.min(Math.ceil((this.left + size.width) / cell), across.length)],
    };
  }

  /** @param {CanvasRenderingContext2D} context */
  drawValues(context) {
    if (this.cell < LEAST_FOR_VALUES) return;
    const { range, table } = /** @type {Shown} */ (this.shown);
    const { rows, columns } = this.window();
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = rows[0]; row < rows[1]; row++) {
      for (let column = columns[0]; column < columns[1]; column++) {
        const value = this.valueAt(row, column);
        if (Number.isNaN(value)) continue;
        context.fillStyle = inkOn(table, stepOf(value, range));
        context.fillText(short(value, 2), (column + 0.5) * this.cell - this.left,
          (row + 0.5) * this.cell - this.top);
      }
    }
  }

  /** @param {CanvasRenderingContext2D} context */
  drawGroups(context) {
    const { down, across, order } = /** @type {Shown} */ (this.shown);
    context.fillStyle = "#fff";
    const line = (/** @type {number} */ room) => (room < 5 ? 0 : room < 40 ? 1 : 2);
    for (const { start, end } of groupsOf(across, order).slice(1)) {
      const width = line((end - start) * this.cell);
      context.fillRect(start * this.cell - this.left - width / 2, 0, width, this.size.height);
    }
    for (const { start, end } of groupsOf(down, order).slice(1)) {
      const width = line((end - start) * this.cell);
      context.fillRect(0, start * this.cell - this.top - width / 2, this.size.width, width);
    }
  }

  /** @param {CanvasRenderingContext2D} context */
  drawOutlines(context) {
    const { down, across, outlines, order } = /** @type {Shown} */ (this.shown);
    if (order === "clustered") return; // the blocks are of neighbours in the model
    context.strokeStyle = "#d55e00";
    context.lineWidth = 2.5;
    for (const block of outlines) {
      const places = [down, across].map((side) =>
        block.map((layer) => side.findIndex((other) => other.layer === layer)));
      if (places.flat().some((place) => place < 0)) continue;
      const [rows, columns] = places.map((of) => [Math.min(...of), Math.max(...of) + 1]);
      context.strokeRect(columns[0] * this.cell - this.left, rows[0] * this.cell - this.top,
        (columns[1] - columns[0]) * this.cell, (rows[1] - rows[0]) * this.cell);
    }
  }

  /** @param {CanvasRenderingContext2D} context */
  drawCursor(context) {
    if (!this.cursor) return;
    const [row, column] = this.cursor;
    const side = Math.max(this.cell, 5);
    const x = (column + 0.5) * this.cell - this.left - side / 2;
    const y = (row + 0.5) * this.cell - this.top - side / 2;
    for (const [colour, width] of /** @type {[string, number][]} */ ([["#000", 4], ["#fff", 2]])) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(x, y, side, side);
    }
  }

  /**
   * Names of models (or numbers of layers) beside their cells, thinned until they fit.
   * @param {CanvasRenderingContext2D} context
   * @param {Layer[]} layers
   * @param {0 | 1} side
   */
  drawLabels(context, layers, side) {
    const { order } = /** @type {Shown} */ (this.shown);
    const away = side === 0 ? this.top : this.left;
    const room = side === 0 ? this.size.height : this.size.width;
    const start = side === 0 ? this.margin.top : this.margin.left;
    context.textBaseline = "middle";
    const numbers = this.cell >= LETTER + 1 && order === "model";
    if (numbers) {
      context.textAlign = side === 0 ? "right" : "center";
      layers.forEach(({ layer }, place) => {
        const at = (place + 0.5) * this.cell - away;
        if (at < 0 || at > room) return;
        const text = layerName(layer);
        if (side === 0) context.fillText(text, this.margin.left - 4, start + at);
        else if (text !== "emb" || this.cell > 24) {
          context.fillText(text, start + at, this.margin.top - 8);
        }
      });
    }
    const names = groupsOf(layers, order);
    let free = -Infinity;
    for (const { start: from, end, name } of names) {
      const low = Math.max(from * this.cell - away, 0), high = Math.min(end * this.cell - away, room);
      if (high - low < 2) continue;
      const middle = (low + high) / 2;
      if (side === 0) {
        if (middle - LETTER / 2 < free) continue;
        free = middle + LETTER / 2 + 2;
        context.textAlign = "left";
        const width = this.margin.left - (numbers ? 28 : 6);
        context.fillText(this.cut(context, name, width), 0, start + middle);
      } else {
        const text = this.cut(context, name, Math.max(high - low, 60));
        const half = context.measureText(text).width / 2;
        const at = Math.min(Math.max(middle, half - start), room - half + 4);
        if (at - half < free) continue;
        free = at + half + 8;
        context.textAlign = "center";
        context.fillText(text, start + at, numbers ? this.margin.top - 26 : this.margin.top - 10);
      }
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {string} name
   * @param {number} width
   */
  cut(context, name, width) {
    if (context.measureText(name).width <= width) return name;
    let kept = name.length;
    while (kept > 1 && context.measureText(`${name.slice(0, kept)}…`).width > width) kept--;
    return `${name.slice(0, kept)}…`;
  }

  /**
   * @param {number} row
   * @param {number} column
   * @param {boolean} [tell] whether `onCursor` is called
   */
  moveTo(row, column, tell = true) {
    if (!this.shown) return;
    const { down, across } = this.shown;
    const inside = (/** @type {number} */ at, /** @type {number} */ count) =>
      Math.min(Math.max(at, 0), count - 1);
    this.cursor = [inside(row, down.length), inside(column, across.length)];
    const see = (/** @type {number} */ place, /** @type {number} */ at,
      /** @type {number} */ room) =>
      Math.min(Math.max(at, (place + 1) * this.cell - room), place * this.cell);
    this.top = see(this.cursor[0], this.top, this.size.height);
    this.left = see(this.cursor[1], this.left, this.size.width);
    this.keepInside();
    this.draw();
    if (down.length > WHOLE_TABLE || across.length > WHOLE_TABLE) this.writeTable();
    if (tell) this.onCursor(...this.cursor);
  }

  /**
   * @param {number} factor
   * @param {number} [x] what stays in place, in pixels of the cells
   * @param {number} [y]
   */
  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const cell = Math.min(Math.max(this.cell * factor, this.fit), Math.max(MOST_ZOOM, this.fit));
    this.left = ((this.left + x) / this.cell) * cell - x;
    this.top = ((this.top + y) / this.cell) * cell - y;
    this.cell = cell;
    this.keepInside();
    this.draw();
  }

  /** The table that screen readers read: whole if it is small, else the row of the cursor. */
  writeTable() {
    const { down, across, title } = /** @type {Shown} */ (this.shown);
    const whole = down.length <= WHOLE_TABLE && across.length <= WHOLE_TABLE;
    const rows = whole ? down.map((_, row) => row) : [this.cursor?.[0] ?? 0];
    const table = document.createElement("table");
    table.createCaption().textContent = whole ? title : `${title}: the row of the cursor`;
    const head = table.createTHead().insertRow();
    head.append(document.createElement("td"));
    for (const layer of across) head.append(headCell(nameOf(layer), "col"));
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      line.append(headCell(nameOf(down[row]), "row"));
      across.forEach((_, column) => {
        line.insertCell().textContent = short(this.valueAt(row, column));
      });
    }
    this.table.replaceChildren(table);
  }

  listen() {
    const { canvas } = this;
    /** @type {Map<number, {x: number, y: number}>} */
    const held = new Map();
    let moved = 0;
    const at = (/** @type {MouseEvent} */ event) => {
      const place = canvas.getBoundingClientRect();
      return {
        x: event.clientX - place.left - this.margin.left,
        y: event.clientY - place.top - this.margin.top,
      };
    };
    const point = (/** @type {MouseEvent} */ event) => {
      const { x, y } = at(event);
      if (x < 0 || y < 0 || x >= this.size.width || y >= this.size.height) return false;
      this.moveTo(Math.floor((y + this.top) / this.cell), Math.floor((x + this.left) / this.cell));
      return true;
    };
    canvas.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
      moved = 0;
    });
    addEventListener("pointerup", (event) => held.delete(event.pointerId));
    addEventListener("pointercancel", (event) => held.delete(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (!this.shown) return;
      const from = held.get(event.pointerId);
      if (!from) {
        point(event);
        return;
      }
      const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      if (other) {
        const distance = (/** @type {{x: number, y: number}} */ place) =>
          Math.hypot(place.x - other.x, place.y - other.y);
        const now = { x: event.clientX, y: event.clientY };
        this.zoom(distance(now) / Math.max(distance(from), 1), at(event).x, at(event).y);
      } else if (this.cell > this.fit * 1.01) {
        this.left -= event.clientX - from.x;
        this.top -= event.clientY - from.y;
        this.keepInside();
        this.draw();
      }
      moved += Math.hypot(event.clientX - from.x, event.clientY - from.y);
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    canvas.addEventListener("click", (event) => {
      if (moved < 5 && point(event) && this.cursor) this.onOpen(...this.cursor);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      const { x, y } = at(event);
      this.zoom(Math.exp(-event.deltaY / 300), x, y);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (!this.shown || event.ctrlKey || event.metaKey || event.altKey) return;
    const [row, column] = this.cursor ?? [0, 0];
    const { down, across } = this.shown;
    const far = event.shiftKey ? 10 : 1;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowUp: () => this.moveTo(row - far, column),
      ArrowDown: () => this.moveTo(row + far, column),
      ArrowLeft: () => this.moveTo(row, column - far),
      ArrowRight: () => this.moveTo(row, column + far),
      Home: () => this.moveTo(row, 0),
      End: () => this.moveTo(row, across.length - 1),
      PageUp: () => this.moveTo(0, column),
      PageDown: () => this.moveTo(down.length - 1, column),
      Enter: () => this.onOpen(row, column),
      "+": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      "0": () => this.zoom(0),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

/**
 * @param {string} text
 * @param {string} scope
 */
export function headCell(text, scope) {
  const cell = document.createElement("th");
  cell.scope = scope;
  cell.textContent = text;
  return cell;
}
