/** The table of a grid that screen readers read. */
import { nameOf } from "./axes.js";
import { short } from "./csv.js";
import { headed, make } from "./make.js";

/** @typedef {import("./heatmap.js").Shown} Shown */

const WHOLE = 30; // rows and columns of a table that is written out

/** @param {Shown} shown */
function isWhole({ down, across }) {
  return down.length <= WHOLE && across.length <= WHOLE;
}

/** All cells of a small grid, the row of the cursor of a large one. */
export class CellTable {
  box = make("div", "hidden");
  row = -1; // that is written
  later = 0;

  /**
   * Write the row of the cursor, unless it stands there.
   * @param {Shown} shown
   * @param {number} row
   * @param {number} pause milliseconds without a move after which it is written: the row of a
   *   large grid takes longer than a frame
   */
  follow(shown, row, pause) {
    clearTimeout(this.later);
    if (row === this.row || isWhole(shown)) return;
    if (pause) this.later = setTimeout(() => this.write(shown, row), pause);
    else this.write(shown, row);
  }

  /**
   * @param {Shown} shown
   * @param {number} row
   */
  write(shown, row) {
    const { down, across, title, values, stride } = shown, whole = isWhole(shown);
    clearTimeout(this.later);
    this.row = row;
    const { table, body } = headed(["", ...across.map(nameOf)]);
    table.createCaption().textContent = whole ? title : `${title}: the row of the cursor`;
    for (const layer of whole ? [...down].reverse() : [down[row]]) {
      const line = body.insertRow();
      line.append(make("th", { scope: "row" }, nameOf(layer)));
      for (const { at } of across) line.insertCell().textContent = short(values[layer.at * stride + at]);
    }
    this.box.replaceChildren(table);
  }
}
