/** The view of curves: contents, and one figure at a time with the rows that it was drawn from. */
import { csv, inWords } from "./csv.js";
import { page, textOf } from "./data.js";
import { passes } from "./filter.js";
import { FIRST_ROWS, button, folded, foldedIfSmall, make, tableOf, wide } from "./make.js";
import { fileButtons } from "./save.js";
import { change, state } from "./state.js";

/** @param {import("./data.js").View} view whose name is such as rt-truncation */
function titleOfView({ name, title, of }) {
  const task = [...of.task, "all-tasks"].find((start) => name.startsWith(`${start}-`));
  const words = (/** @type {unknown} */ text) => String(text).replaceAll("-", " ");
  return task ? `${words(task)}: ${title || words(name.slice(String(task).length + 1))}` : title || words(name);
}

/** @param {import("./data.js").View} view */
export function isFoundView(view) {
  return passes({ title: titleOfView(view), ...view.of });
}

/** @type {{id: string, title: string, view: import("./data.js").View, drawn: HTMLElement, link: HTMLElement}[]} */
const figures = [];

/** A table of contents: the words before the first comma of a title stand above the figures that share them. */
function contentsOf() {
  const list = make("nav", { "aria-label": "Contents" }), box = foldedIfSmall(`Contents: ${inWords(figures.length)} figure${figures.length === 1 ? "" : "s"}`, list);
  let last = "", place = make("div");
  for (const { id, title, link } of figures) {
    const [head, ...rest] = title.split(", ");
    if (head !== last || !rest.length) list.append(place = make("div", {}, ...(rest.length ? [make("b", {}, head)] : [])));
    last = head;
    link.textContent = rest.join(", ") || title;
    link.onclick = () => {
      change({ figure: id });
      box.open = wide.matches;
    };
    place.append(link);
  }
  return box;
}

/** @param {HTMLElement} place */
export async function showCurves(place) {
  if (!page.views.length) {
    place.textContent = "The results hold no figures of curves: curves over layers and steps that are made from grids stand in the Overview.";
    return;
  }
  if (!figures.length) {
    const loads = page.views.map((view) => {
      const { drawn, load } = figureOf(view), title = titleOfView(view);
      figures.push({ id: view.picture, title, view, drawn, link: button(title, () => {}) });
      return load;
    });
    place.append(contentsOf(), make("div", {}, ...figures.map(({ drawn }) => drawn)));
    for (const load of loads) await load(); // all, because paper shows all
  }
  const found = figures.filter(({ view }) => isFoundView(view));
  const chosen = found.find(({ id }) => id === state.figure) ?? found[0];
  for (const figure of figures) {
    figure.drawn.hidden = figure.link.hidden = !found.includes(figure);
    figure.drawn.classList.toggle("other", figure !== chosen);
    figure.link.ariaCurrent = String(figure === chosen);
  }
  for (const group of place.querySelectorAll("nav > div")) group.toggleAttribute("hidden", !group.querySelector("button:not([hidden])"));
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
