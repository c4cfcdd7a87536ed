/** What the page shows, kept in its address, so that a link shows the same view. */

/**
 * @typedef {{view: string, a: string, b: string, order: string, range: string, colours: string,
 *   hide: string, layer: string, cell: string}} State
 */

/** @type {State} */
const INITIAL = {
  view: "grids", a: "", b: "", order: "model", range: "fixed", colours: "viridis", hide: "",
  layer: "", cell: "",
};

/** @returns {State} */
export function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  const state = { ...INITIAL };
  for (const name of /** @type {(keyof State)[]} */ (Object.keys(INITIAL))) {
    state[name] = given.get(name) ?? INITIAL[name];
  }
  return state;
}

/**
 * The address of a state; what is as usual is left out.
 * @param {State} state
 */
export function addressOf(state) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (name === "view" || value !== INITIAL[/** @type {keyof State} */ (name)]) {
      found.set(name, value);
    }
  }
  return `#${found}`;
}

/**
 * Write a state into the address without a new entry in the history.
 * @param {State} state
 */
export function keepState(state) {
  history.replaceState(null, "", addressOf(state));
}
