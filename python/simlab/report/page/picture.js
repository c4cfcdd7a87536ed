/** A picture as a list of marks, painted on a canvas or written as SVG: both show the same. */

/**
 * @typedef {{x: number, y: number, text: string, anchor?: "start" | "middle" | "end", fill?: string,
 *   size?: number}} Words `y` is the middle of the letters.
 * @typedef {{rect: number[], fill?: string, stroke?: string, width?: number, title?: string}} Box
 * @typedef {{line: number[], stroke: string, width: number}} Line x and y of each of its points
 * @typedef {{dot: number[], fill: string, stroke?: string}} Dot x, y and radius
 * @typedef {{image: HTMLCanvasElement, from: number[], rect: number[], smooth: boolean}} Image
 *   the part of it that fills the rectangle
 * @typedef {{within: number[], marks: Mark[]}} Inside marks that end at a rectangle, and begin there
 * @typedef {Words | Box | Line | Dot | Image | Inside} Mark
 */

export const LETTER = 11; // pixels of a label
export const FONT = "system-ui, sans-serif";
/** The fill of undefined cells, which no colour map has. */
export const HATCH = "hatch";

const measurer = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
measurer.font = `${LETTER}px ${FONT}`;

/** @param {string} text */
export function widthOf(text) {
  return measurer.measureText(text).width;
}

/**
 * A name without its middle: names differ at their ends.
 * @param {string} name
 * @param {number} width
 */
export function cut(name, width) {
  if (widthOf(name) <= width) return name;
  let kept = Math.min(name.length - 1, Math.ceil(width / 4));
  const made = () => `${name.slice(0, Math.floor(kept / 2))}…${name.slice(name.length - Math.ceil(kept / 2))}`;
  while (kept > 1 && widthOf(made()) > width) kept--;
  return made();
}

/** @param {string} colours of the hatch and below it */
function tileOf(colours) {
  const [line, ground] = colours.split(" "), tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const context = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  context.fillStyle = ground;
  context.fillRect(0, 0, 6, 6);
  context.strokeStyle = line;
  context.lineWidth = 1.5;
  for (const at of [-6, 0, 6]) {
    context.moveTo(at - 1, 7);
    context.lineTo(at + 7, -1);
  }
  context.stroke();
  return tile;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Mark[]} marks
 * @param {string} hatch the colours of the hatch and below it
 */
export function paintMarks(context, marks, hatch) {
  for (const mark of marks) {
    if ("within" in mark) {
      const [x, y, width, height] = mark.within;
      context.save();
      context.translate(x, y);
      context.beginPath();
      context.rect(0, 0, width, height);
      context.clip();
      paintMarks(context, mark.marks, hatch);
      context.restore();
    } else if ("text" in mark) {
      context.font = `${mark.size ?? LETTER}px ${FONT}`;
      context.textBaseline = "middle";
      context.textAlign = mark.anchor === "middle" ? "center" : mark.anchor ?? "start";
      context.fillStyle = mark.fill ?? "#000";
      context.fillText(mark.text, mark.x, mark.y);
    } else if ("image" in mark) {
      const [[a, b, c, d], [x, y, width, height]] = [mark.from, mark.rect];
      context.imageSmoothingEnabled = mark.smooth;
      context.drawImage(mark.image, a, b, c, d, x, y, width, height);
    } else if ("line" in mark || "dot" in mark) {
      context.beginPath();
      if ("dot" in mark) context.arc(mark.dot[0], mark.dot[1], mark.dot[2], 0, 7);
      else for (let at = 0; at < mark.line.length; at += 2) context.lineTo(mark.line[at], mark.line[at + 1]);
      if ("dot" in mark) {
        context.fillStyle = mark.fill;
        context.fill();
      }
      context.strokeStyle = mark.stroke ?? "transparent";
      context.lineWidth = "width" in mark ? mark.width : 1;
      context.stroke();
    } else {
      const [x, y, width, height] = mark.rect;
      if (mark.fill) {
        context.fillStyle = mark.fill !== HATCH ? mark.fill
          : context.createPattern(tileOf(hatch), "repeat") ?? "";
        context.fillRect(x, y, width, height);
      }
      if (mark.stroke) {
        context.strokeStyle = mark.stroke;
        context.lineWidth = mark.width ?? 1;
        context.strokeRect(x, y, width, height);
      }
    }
  }
}

/** @param {string} text */
function escaped(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\0-\x08\v\f\x0e-\x1f\ufffe\uffff]/g, "\ufffd").replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/**
 * @param {string} name
 * @param {Record<string, unknown>} attributes those that are undefined are left out
 * @param {string} [inside]
 */
function tag(name, attributes, inside = "") {
  const given = Object.entries(attributes).filter(([, value]) => value !== undefined);
  return `<${name}${given.map(([key, value]) => ` ${key}="${escaped(String(value))}"`).join("")}>${inside}</${name}>`;
}

let clips = 0;

/** @param {Mark} mark @returns {string} */
function tagOf(mark) {
  if ("within" in mark) {
    const [x, y, width, height] = mark.within, id = `clip${clips++}`;
    return tag("clipPath", { id }, tag("rect", { x: 0, y: 0, width, height })) + tag("g", {
      transform: `translate(${x} ${y})` }, tag("g", { "clip-path": `url(#${id})` }, mark.marks.map(tagOf).join("")));
  }
  if ("text" in mark) {
    return tag("text", { x: mark.x, y: mark.y, "text-anchor": mark.anchor ?? "start", "font-size": mark.size,
      fill: mark.fill, "dominant-baseline": "central" }, escaped(mark.text));
  }
  if ("line" in mark) {
    return tag("polyline", { points: mark.line.join(" "), fill: "none", stroke: mark.stroke, "stroke-width": mark.width });
  }
  if ("dot" in mark) {
    return tag("circle", { cx: mark.dot[0], cy: mark.dot[1], r: mark.dot[2], fill: mark.fill, stroke: mark.stroke });
  }
  const [x, y, width, height] = mark.rect;
  if ("image" in mark) {
    return tag("image", { x, y, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated",
      href: mark.image.toDataURL() });
  }
  return tag("rect", { x, y, width, height, fill: mark.fill === HATCH ? "url(#hatch)" : mark.fill ?? "none",
    stroke: mark.stroke, "stroke-width": mark.width }, mark.title && tag("title", {}, escaped(mark.title)));
}

/**
 * @typedef {{marks: Mark[], width: number, height: number}} Picture on white
 */

const PAPER = "#888 #eee"; // the hatch

/** @param {Picture} picture */
export function svgOf({ marks, width, height }) {
  const [line, ground] = PAPER.split(" ");
  const hatch = tag("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    tag("rect", { x: 0, y: 0, width: 6, height: 6, fill: ground }) +
    tag("path", { d: "M-1 1L1 -1M-1 7L7 -1M5 7L7 5", stroke: line, "stroke-width": 1.5 }));
  return new Blob([tag("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, "font-size": LETTER,
    viewBox: `0 0 ${width} ${height}`, "font-family": FONT },
  hatch + [{ rect: [0, 0, width, height], fill: "#fff" }, ...marks].map(tagOf).join(""))], { type: "image/svg+xml" });
}
