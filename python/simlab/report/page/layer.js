/** The panel of a layer: its profile against every other model, and what else is known of it. */
import { modelName, nameOf } from "./axes.js";
import { chartOf } from "./chart.js";
import { inWords, short } from "./csv.js";
import { page, settingOf } from "./data.js";
import { baselineWords } from "./facts.js";
import { button, folded, make } from "./make.js";
import { curvesOf, meanOf, profileOf } from "./profile.js";
import { membersOf } from "./seeds.js";
import { joined } from "./state.js";

export const OTHERS = "layer of the other model";
const LIST = /, (?![^[{]*[\]}])/; // between details, not within a list that is one
const OPTION = /^[a-z]\w* /; // such as learning_rate 0.001; a kind or an estimator is one word

/**
 * @param {HTMLElement} place
 * @param {number} model
 * @param {number} layer
 * @param {import("./data.js").Grid} grid
 * @param {() => void} close
 */
export async function showLayer(place, model, layer, grid, close) {
  const { name, task } = settingOf(grid);
  const curves = curvesOf(await profileOf(grid, model, layer), model);
  const title = nameOf({ model, layer, at: 0 }), seeds = membersOf(model).length, over = seeds > 1 ? `, mean of ${seeds} seeds` : "";
  place.replaceChildren(make("section", { class: "layer", "aria-label": `Layer ${title}` },
    make("div", "head", make("h2", {}, title), button("Close", close)),
    make("div", "parts",
      make("div", {}, make("h3", {}, `${name} with every layer${over}`), chartOf(`${title}${over}, ${name} with every layer`, curves,
        OTHERS)),
      make("div", {}, make("h3", {}, "The layer alone"), aloneOf(model, layer, task)))));
  place.hidden = false;
}

/**
 * What the results say of a layer alone: localization, truncation, skipping. On another task, a
 * model of the same name may be another one.
 * @param {number} model
 * @param {number} layer
 * @param {string} own the task of the grid
 */
function aloneOf(model, layer, own) {
  const known = page.facts.filter((fact) =>
    fact[0] === own && membersOf(model).includes(fact[1]) && fact[2] === layer);
  if (!known.length) {
    return make("p", "hint",
      `No localization, truncation or skipping of it on ${own}.`);
  }
  const detailsOf = (/** @type {import("./data.js").Fact} */ fact) => fact[8].split(LIST).filter(Boolean);
  const names = [...new Set(known.map((fact) => fact[3]))];
  return make("div", {}, ...names.flatMap((name) => {
    const mine = known.filter((fact) => fact[3] === name);
    const shared = detailsOf(mine[0]).filter((one) => OPTION.test(one) && mine.every((fact) => detailsOf(fact).includes(one)));
    /** @type {Map<string, import("./data.js").Fact[]>} Facts that differ in seeds alone: each seed is there once. */
    const alike = new Map();
    for (const fact of mine) {
      const twins = mine.slice(0, mine.indexOf(fact)).filter((other) => [1, 7, 8].every((at) => other[at] === fact[at]));
      const key = joined([fact[8], fact[7], twins.length]);
      alike.set(key, [...alike.get(key) ?? [], fact]);
    }
    return [make("ul", {}, ...[...alike.values()].map((facts) => {
      const [fact] = facts, [task, , , what, , low, high, n] = fact;
      const words = [task, ...detailsOf(fact).filter((one) => !shared.includes(one)), `n = ${inWords(n)}`];
      const { values, mean, sd } = meanOf(facts.map((of) => of[4] ?? NaN));
      return make("li", {}, `${what} (${words.join(", ")}): ${short(mean)}` +
        (facts.length > 1 ? `, SD ${short(sd)} over ${values.length} seeds`
          : low === null ? "" : `; 95 % interval ${short(low)} to ${short(high)}`) + baselineWords(fact));
    })), ...(shared.length ? [folded(`Options of ${name}`, () => [make("ul", {}, ...shared.map((one) => make("li", {}, one)))])] : [])];
  }));
}

/** @param {string} name that links use */
export function modelNamed(name) {
  return page.models.findIndex((_, number) => modelName(number) === name);
}
