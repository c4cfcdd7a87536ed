/** The view of curves: figures with the rows that they were drawn from. */
import { csv, inWords } from "./csv.js";
import { page, textOf } from "./data.js";
import { passes } from "./filter.js";
import { FIRST_ROWS, button, folded, make, tableOf } from "./make.js";
import { fileButtons } from "./save.js";

/** @param {import("./data.js").View} view whose name is such as rt-truncation */
function titleOfView({ name, of }) {
  const task = [...of.task, "all-tasks"].find((start) => name.startsWith(`${start}-`));
  const words = (/** @type {unknown} */ text) => String(text).replaceAll("-", " ");
  return task ? `${words(task)}: ${words(name.slice(String(task).length + 1))}` : words(name);
}

/** @type {{title: string, of: import("./filter.js").Fields, drawn: HTMLElement, link: HTMLElement}[]} */
const figures = [];

/** @param {HTMLElement} place */
export async function showCurves(place) {
  if (!place.childElementCount) {
    const contents = make("nav", { class: "bar", "aria-label": "Contents" });
    place.append(page.views.length ? contents : make("p", {}, "The results hold no figures of curves: curves over layers and steps that are made from grids stand in the Overview."));
    const loads = page.views.map((view) => {
      const { drawn, load } = figureOf(view), title = titleOfView(view);
      const link = button(title, () => drawn.scrollIntoView());
      figures.push({ title, of: view.of, drawn, link });
      contents.append(link);
      place.append(drawn);
      return load;
    });
    for (const load of loads) await load(); // all, because paper shows all
  }
  for (const { title, of, drawn, link } of figures) drawn.hidden = link.hidden = !passes({ title, ...of });
}

/** @param {import("./data.js").View} view */
function figureOf(view) {
  const title = titleOfView(view);
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
  const details = folded(`${inWords(view.count)} rows`, async () => {
    const { columns, rows: all } = await rows(), more = all.length > FIRST_ROWS;
    return [...(more ? [make("p", "hint", `The first ${FIRST_ROWS}; “Copy as CSV” has all.`)] : []),
      tableOf(columns, all.slice(0, FIRST_ROWS), `Rows of ${title}`)];
  });
  drawn.append(make("div", "bar",
    ...fileButtons(() => view.name, picture, async () => {
      const { columns, rows: all } = await rows();
      return csv(columns, all);
    })),
  details);
  return { drawn, load };
}
