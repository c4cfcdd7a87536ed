/** Mouse, touch and keys on a grid. */

/**
 * @typedef {import("./heatmap.js").Heatmap} Heatmap
 * @typedef {{x: number, y: number}} Point
 */

export const REST = 200; // milliseconds without a move after which the table of a grid is written

/** @param {Heatmap} map */
export function listen(map) {
  const { canvas } = map;
  /** @type {Map<number, Point>} */
  const held = new Map();
  let moved = 0;
  const at = (/** @type {MouseEvent} */ event) => {
    const place = canvas.getBoundingClientRect();
    return {
      x: event.clientX - place.left - map.margin.left,
      y: event.clientY - place.top - map.margin.top,
    };
  };
  const point = (/** @type {MouseEvent} */ event) => {
    const { x, y } = at(event);
    if (!map.shown || x < 0 || y < 0 || x >= map.size.width || y >= map.size.height) return false;
    map.moveTo(map.above(Math.floor((y + map.top) / map.cell)),
      Math.floor((x + map.left) / map.cell), true, REST);
    return true;
  };
  canvas.onpointerdown = (event) => {
    if (event.button) return; // of a menu
    held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved = 0;
  };
  addEventListener("pointerup", (event) => held.delete(event.pointerId));
  addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.onpointermove = (event) => {
    if (event.pointerType === "mouse" && !event.buttons) held.clear(); // released elsewhere
    const from = held.get(event.pointerId);
    if (!from) {
      point(event);
      return;
    }
    const now = { x: event.clientX, y: event.clientY };
    const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    if (other) {
      const distance = (/** @type {Point} */ place) =>
        Math.max(Math.hypot(place.x - other.x, place.y - other.y), 1);
      map.zoom(distance(now) / distance(from), at(event).x, at(event).y);
    } else if (event.pointerType === "touch" && !map.isZoomed()) point(event); // a drag across reads
    else map.pan(from.x - now.x, from.y - now.y);
    moved += Math.hypot(now.x - from.x, now.y - from.y);
    held.set(event.pointerId, now);
  };
  canvas.onclick = (event) => {
    const before = String(map.cursor);
    if (moved >= 5 || !point(event) || !map.cursor) return;
    // A finger cannot point without a tap: the first one reads, the second one opens.
    const { pointerType } = /** @type {PointerEvent} */ (event);
    if (pointerType !== "touch" || String(map.cursor) === before) map.onOpen(...map.cursor);
  };
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    const { x, y } = at(event);
    map.zoom(Math.exp(-event.deltaY / 300), x, y);
  }, { passive: false });
  canvas.onkeydown = (event) => onKey(map, event);
}

/**
 * @param {Heatmap} map
 * @param {KeyboardEvent} event
 */
function onKey(map, event) {
  if (!map.shown || event.ctrlKey || event.metaKey || event.altKey) return;
  const [row, column] = map.cursor ?? [0, 0], { down, across } = map.shown;
  const far = event.shiftKey ? 10 : 1;
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowUp: () => map.moveTo(row + far, column),
    ArrowDown: () => map.moveTo(row - far, column),
    ArrowLeft: () => map.moveTo(row, column - far),
    ArrowRight: () => map.moveTo(row, column + far),
    Home: () => map.moveTo(row, 0),
    End: () => map.moveTo(row, across.length - 1),
    PageUp: () => map.moveTo(down.length - 1, column),
    PageDown: () => map.moveTo(0, column),
    Enter: () => map.onOpen(row, column),
    "+": () => map.zoom(1.5),
    "-": () => map.zoom(1 / 1.5),
    "0": () => map.zoom(0),
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
}
