/** The views beside the grids: curves with their rows, and what was run. */
import { headCell } from "./heatmap.js";
import { page, textOf } from "./data.js";
import { csv } from "./csv.js";
import { copy, save, toPng } from "./save.js";

const FIRST_ROWS = 200;

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} content
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

/**
 * A button, and a word beside it that says what it did.
 * @param {string} label
 * @param {() => Promise<string | void> | string | void} act
 */
export function button(label, act) {
  const made = make("button", { type: "button" }, label);
  made.addEventListener("click", async () => {
    const done = await act();
    if (!done) return;
    made.textContent = done;
    setTimeout(() => { made.textContent = label; }, 2500);
  });
  return made;
}

/**
 * @param {string[]} columns
 * @param {unknown[][]} rows
 * @param {string} label
 */
function tableOf(columns, rows, label) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  for (const column of columns) head.append(headCell(column, "col"));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell();
      cell.textContent = value === null || value === undefined ? "" : String(value);
      if (typeof value === "number") cell.className = "number";
      else if (String(value).length > 40) cell.className = "long";
    }
  }
  const box = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label });
  box.append(table);
  return box;
}

/** @param {string} name such as rt-truncation */
function titleOfView(name) {
  return name.replaceAll("-", " ");
}

/** @param {HTMLElement} place */
export function showCurves(place) {
  if (place.childElementCount) return;
  if (!page.views.length) {
    place.append(make("p", {}, "The results hold no curves: no truncation, skipping, freezing, " +
      "injection, alignment or training."));
    return;
  }
  for (const view of page.views) place.append(figureOf(view));
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
  new IntersectionObserver(async ([entry], observer) => {
    if (!entry.isIntersecting) return;
    observer.disconnect();
    image.src = URL.createObjectURL(await picture());
    image.style.height = "auto";
  }, { rootMargin: "600px" }).observe(image);
  const details = make("details", {},
    make("summary", {}, `${view.count.toLocaleString("en")} rows`));
  details.addEventListener("toggle", async () => {
    if (details.childElementCount > 1) return;
    const { columns, rows: all } = await rows();
    if (all.length > FIRST_ROWS) {
      details.append(make("p", { class: "hint" },
        `The first ${FIRST_ROWS}; “Copy as CSV” has all.`));
    }
    details.append(tableOf(columns, all.slice(0, FIRST_ROWS), `Rows of ${title}`));
  });
  drawn.append(make("div", { class: "bar" },
    button("Copy as CSV", async () => {
      const { columns, rows: all } = await rows();
      return copy(csv(columns, all), `${view.name}.csv`);
    }),
    button("Save as SVG", async () => save(`${view.name}.svg`, await picture())),
    button("Save as PNG", async () => save(`${view.name}.png`, await toPng(await picture())))),
  details);
  return drawn;
}

/** @param {HTMLElement} place */
export function showRuns(place) {
  if (place.childElementCount) return;
  const undone = page.jobs.filter(({ done }) => !done);
  place.append(make("h2", {}, "Models"), tableOf(["model", "seed"],
    page.models.map(({ name, seed }) => [name, seed]), "Models"));
  place.append(make("h2", {}, "Grids"), tableOf(["task", "kind", "measure", "grids", "cells"],
    page.settings.map((setting, number) => [setting.task, setting.kind, setting.name,
      page.grids.filter((grid) => grid.setting === number).length, setting.count]), "Grids"));
  for (const manifest of page.manifests) {
    const { folder, steps: _, ...rest } = manifest;
    place.append(make("h2", {}, `Run ${folder}`),
      tableOf(["what", "value"], Object.entries(rest), `Run ${folder}`));
  }
  if (undone.length) {
    place.append(make("h2", {}, "Unfinished"), tableOf(["job", "seconds"],
      undone.map(({ path, seconds }) => [path, seconds]), "Unfinished jobs"));
  }
  if (page.jobs.length) {
    place.append(make("h2", {}, "Jobs"));
    const rows = page.jobs.map(({ path, seconds, done, inputs }) =>
      [path, done ? "done" : "unfinished", seconds,
        Object.entries(inputs).map(([name, value]) => `${name}: ${value}`).join("; ")]);
    place.append(make("div", { class: "bar" }, button("Copy as CSV", () =>
      copy(csv(["job", "state", "seconds", "inputs"], rows), "jobs.csv"))),
    tableOf(["job", "state", "seconds", "inputs"], rows, "Jobs"));
  } else {
    place.append(make("p", { class: "hint" }, "The folder of the results holds no records of jobs: " +
      "recipes and inputs are not known."));
  }
  place.append(make("h2", {}, "Versions that wrote this page"),
    tableOf(["package", "version"], Object.entries(page.versions), "Versions"));
}
