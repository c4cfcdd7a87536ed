/** Blocks of layers that are framed in a grid: all of them, or the one that was chosen. */
import { modelName, seedCount } from "./axes.js";
import { button } from "./make.js";
import { change, state } from "./state.js";

/** @typedef {import("./data.js").Grid} Grid */

/**
 * What a link names a block by.
 * @param {number[]} layers
 */
export function blockKey(layers) {
  return layers.join("-");
}

/**
 * The blocks that are framed: the chosen one alone, if the grid has it.
 * @param {Grid} grid
 */
export function framedBlocks({ blocks = [] }) {
  const alone = blocks.filter(([, layers]) => blockKey(layers) === state.block);
  return alone.length ? alone : blocks;
}

/** @param {number[]} layers */
function span(layers) {
  return `${layers[0]} to ${layers[layers.length - 1]}`;
}

/**
 * What the frames are, and buttons that frame one block alone, or all.
 * @param {Grid} grid
 * @returns {[string, HTMLElement[]]}
 */
export function framesLegend(grid) {
  const all = grid.blocks ?? [], framed = framedBlocks(grid), others = new Set(all.map(([, layers]) => blockKey(layers)));
  if (framed !== all) {
    const [[, layers, count]] = framed, less = others.size - 1;
    const seeds = count ? `: ${count} of ${seedCount(grid)} (${seedsWith(grid, layers).join(", ")})` : "";
    const hidden = less ? `; ${less} other block${less === 1 ? " is" : "s are"} not framed` : "";
    return [`block of layers ${span(layers)}${seeds}${hidden}`,
      less ? [button("Frame all", () => change({ block: "" }), "Frame all blocks")] : []];
  }
  const counted = all.some(([, , seeds]) => seeds) ? ` (${all.map(([, layers, seeds]) =>
    `${span(layers)}: ${seeds} of ${seedCount(grid)}`).join("; ")})` : "";
  return [`blocks of layers${counted}`, grid.parts && all.length > 1 ? all.map(([, layers]) =>
    button(span(layers), () => change({ block: blockKey(layers) }), `Frame layers ${span(layers)} alone`)) : []];
}

/**
 * The names of the seeds that have a block.
 * @param {Grid} grid
 * @param {number[]} layers
 */
function seedsWith({ parts = [] }, layers) {
  return parts.filter(({ grid, x, y }) => x === y && grid.blocks?.some(([model, own]) =>
    model === x && blockKey(own) === blockKey(layers))).map(({ x }) => modelName(x));
}
