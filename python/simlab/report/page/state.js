/** What the page shows, kept in its address, so that a link shows the same view. */

/**
 * @typedef {{view: string, a: string, b: string, order: string, range: string, colours: string,
 *   layer: string, cell: string, zoom: string,
 *   show: string, measure: string, find: string, block: string, figure: string}} State
 * `a` and `b` are keys of grids; `layer` is a panel, a model and a number; `cell` two
 * layers; `zoom` is what panel A shows of its grid: a factor, the first column, the first row;
 * `show` is the plane that grids show;
 * `measure` is the one of the overview; `find` is the filter of all views;
 * `block` are the layers that are framed alone; `figure` is the one of the curves.
 */

/** @type {State} */
const INITIAL = {
  view: "", a: "", b: "", order: "model", range: "fixed", colours: "viridis",
  layer: "", cell: "", zoom: "1", show: "", measure: "", find: "", block: "", figure: "",
};

/**
 * Names as one text that `split` takes apart, whatever signs the names have.
 * @param {Iterable<string | number>} names
 */
export function joined(names) {
  return [...names].map((name) =>
    String(name).replaceAll("%", "%25").replaceAll("~", "%7E")).join("~");
}

/** @param {string} text that `joined` made */
export function split(text) {
  return text.split("~").map((name) => name.replaceAll("%7E", "~").replaceAll("%25", "%"));
}

/** @type {State} */
export let state = readState();

/** @type {[(keyof State)[], () => void][]} */
const subscribers = [];

/**
 * Call a function whenever a part of the state has changed.
 * @param {(keyof State)[]} names of the parts
 * @param {() => void} act
 */
export function subscribe(names, act) {
  subscribers.push([names, act]);
}

/**
 * Write changes into the address, without a new entry in the history.
 * @param {Partial<State>} changes
 */
export function keep(changes) {
  state = { ...state, ...changes };
  history.replaceState(null, "", addressOf(state));
}

/**
 * Write changes into the address, and show them; the Back key undoes them.
 * @param {Partial<State>} changes
 * @param {boolean} [passing] whether they are of a field that is being typed or dragged, without an own entry
 */
export function change(changes, passing = "find" in changes) {
  if (!passing) history.pushState(null, "");
  const before = state;
  keep(changes);
  if (state.view !== before.view) scrollTo(0, 0); // Back goes to where a view was left
  for (const [names, act] of subscribers) if (names.some((name) => state[name] !== before[name])) act();
}

addEventListener("hashchange", () => {
  state = readState();
  for (const [, act] of subscribers) act();
});

/** @returns {State} */
function readState() {
  const given = new URLSearchParams(location.hash.slice(1)), found = { ...INITIAL };
  for (const name of /** @type {(keyof State)[]} */ (Object.keys(INITIAL))) {
    found[name] = given.get(name) ?? INITIAL[name];
  }
  return found;
}

/**
 * The address of a state; what is as usual is left out.
 * @param {State} given
 */
export function addressOf(given) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (name === "view" || value !== INITIAL[/** @type {keyof State} */ (name)]) {
      found.set(name, value);
    }
  }
  return `#${found}`;
}
