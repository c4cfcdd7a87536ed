/** The view of curves: figures with the rows that they were drawn from. */
import { csv } from "./csv.js";
import { page, textOf } from "./data.js";
import { FIRST_ROWS, button, folded, make, tableOf } from "./make.js";
import { copy, save, toPng } from "./save.js";

/** @param {string} name such as rt-truncation */
function titleOfView(name) {
  return name.replaceAll("-", " ");
}

/** @param {HTMLElement} place */
export async function showCurves(place) {
  if (place.childElementCount) return;
  if (!page.views.length) {
    place.append(make("p", {}, "The results hold no curves, only grids."));
    return;
  }
  const loads = page.views.map((view) => {
    const { drawn, load } = figureOf(view);
    place.append(drawn);
    return load;
  });
  for (const load of loads) await load(); // all, because paper shows all
}

/** @param {import("./data.js").View} view */
function figureOf(view) {
  const title = titleOfView(view.name);
  const picture = () => textOf(view.picture).then((svg) =>
    new Blob([svg], { type: "image/svg+xml" }));
  const rows = () => textOf(view.rows).then((text) =>
    /** @type {{columns: string[], rows: unknown[][]}} */ (JSON.parse(text)));
  const image = make("img", { alt: `${title}: the rows below it hold its values`,
    width: String(view.width), height: String(Math.round(view.width * view.shape)) });
  const drawn = make("figure", {}, make("h2", {}, title), image);
  const load = async () => {
    image.src = URL.createObjectURL(await picture());
  };
  const details = folded(`${view.count.toLocaleString("en")} rows`, async () => {
    const { columns, rows: all } = await rows();
    const more = all.length > FIRST_ROWS;
    return [...(more ? [make("p", { class: "hint" }, `The first ${FIRST_ROWS}; “Copy as CSV” has all.`)] : []),
      tableOf(columns, all.slice(0, FIRST_ROWS), `Rows of ${title}`)];
  });
  drawn.append(make("div", { class: "bar" },
    button("Copy as CSV", async () => {
      const { columns, rows: all } = await rows();
      return copy(csv(columns, all), `${view.name}.csv`);
    }),
    button("Save as PNG", async () => save(`${view.name}.png`, await toPng(await picture()))),
    button("Save as SVG", async () => save(`${view.name}.svg`, await picture()))),
  details);
  return { drawn, load };
}
