/** What was run: models, grids, what is done, what failed, what is missing, jobs, versions. */
import { csv } from "./csv.js";
import { isStored, lengthOf, page, textOf } from "./data.js";
import { passes } from "./filter.js";
import { FIRST_ROWS, button, make, tableOf } from "./make.js";
import { copy } from "./save.js";
import { MODELS } from "./seeds.js";

const NAMED = ["model", "task", "job"]; // first columns of tables that are filtered

/** The tasks of each model. A fine-tuned model of one name is another one on each task. */
export const modelTasks = page.models.slice(0, MODELS).map(() => /** @type {Set<string>} */ (new Set()));
for (const { setting, x, y } of page.grids) {
  for (const [model] of [...page.axes[x], ...page.axes[y]]) modelTasks[model]?.add(page.settings[setting].task);
}
for (const [task, model] of page.facts) modelTasks[model].add(task);

/** @param {HTMLElement} place */
export async function showRuns(place) {
  place.replaceChildren();
  const add = (/** @type {string} */ title, /** @type {string[]} */ columns, /** @type {unknown[][]} */ all) => {
    const rows = !NAMED.includes(columns[0]) ? all : all.filter((row) => passes(Object.fromEntries(columns.map((name, at) => [name, row[at]]))));
    if (!rows.length) return;
    place.append(make("h2", {}, title), tableOf(columns, rows.slice(0, FIRST_ROWS), title));
    if (rows.length > FIRST_ROWS) {
      place.append(make("p", "hint",
        `The first ${FIRST_ROWS} of ${rows.length} rows; “Copy as CSV” has all.`));
    }
    place.append(make("div", "bar", button("Copy as CSV",
      async () => copy(await csv(columns, rows), `${title}.csv`), `Copy as CSV: ${title}`)));
  };
  for (const { folder, kinds, error, failed } of page.statuses) {
    const states = [...new Set(Object.values(kinds).flatMap(Object.keys))];
    add(`State of ${folder}`, ["jobs", ...states], Object.entries(kinds).map(([kind, counts]) =>
      [kind, ...states.map((state) => counts[state] ?? 0)]));
    if (error) place.append(make("p", {}, `The last failure: ${error}`));
    add(`What failed in ${folder}`, ["job", "error"], failed.map((job) => [job.title, job.error]));
  }
  add("Models", ["model", "seed", "task"], page.models.slice(0, MODELS).map(({ name, seed }, model) =>
    [name, seed, [...modelTasks[model]].join(", ")]));
  const grids = page.settings.map(() => 0), cells = [...grids];
  for (const { setting, x, y } of page.grids.filter(isStored)) {
    grids[setting]++;
    cells[setting] += lengthOf(x) * lengthOf(y);
  }
  add("Grids", ["task", "kind", "measure", "grids", "cells"],
    page.settings.map(({ task, kind, name }, number) => [task, kind, name,
      grids[number], cells[number]]));
  if (page.jobs) await addJobs(add);
  else {
    place.append(make("p", "hint", "No records of jobs were found."));
  }
  add("Versions that wrote this page", ["package", "version"], Object.entries(page.versions));
}

/**
 * What is known of the inputs of a job: hashes stand last, and what was not given is left out.
 * @param {import("./data.js").Job} job
 */
function inputsOf({ inputs }) {
  const known = Object.entries(inputs).filter(([, value]) => value !== "null");
  const isHash = (/** @type {[string, string]} */ [, value]) => Number(/^[0-9a-f]{40,64}$/.test(value));
  return known.sort((a, b) => isHash(a) - isHash(b)).map(([name, value]) => `${name}: ${value}`).join("; ");
}

/** @param {(title: string, columns: string[], rows: unknown[][]) => void} add */
async function addJobs(add) {
  /** @type {import("./data.js").Job[]} */
  const jobs = JSON.parse(await textOf("jobs"));
  const undone = jobs.filter(({ done }) => !done);
  add("Unfinished", ["job", "seconds"], undone.map(({ name, seconds }) => [name, seconds]));
  add("Jobs", ["job", "state", "seconds", "inputs", "folder"], jobs.map((job) =>
    [job.name, job.done ? "done" : "unfinished", job.seconds,
      inputsOf(job), job.path]));
}
