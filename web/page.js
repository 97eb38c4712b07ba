// What every page of Paceline uses: elements from text, numbers as the terminal writes them, the tooltip, drawing.
// Names come from traces, so text reaches the document only through text nodes, never as markup.

function reportError(message) {
  const root = document.documentElement;
  root.dataset.errors = (root.dataset.errors ? root.dataset.errors + " | " : "") + message;
}
window.addEventListener("error", (event) => reportError(event.message));
document.addEventListener("securitypolicyviolation", (event) => reportError("blocked: " + event.violatedDirective));

/** el("td", {class: "number", "data-ns": 7}, "text", child, ...); null children and attributes are left out. */
function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

const format = {
  /** ns as milliseconds with three decimals; halves go up. */
  ms: (ns) => (Math.round(ns / 1e3) / 1e3).toFixed(3),
  us: (ns) => (Math.round(ns / 1e2) / 10).toFixed(1),
  /** All digits: "11.452 344 ms". */
  exact: (ns) => {
    const size = Math.abs(ns), decimals = String(size % 1e6).padStart(6, "0");
    return `${ns < 0 ? "-" : ""}${format.count(Math.floor(size / 1e6))}.${decimals.slice(0, 3)}\u202f${decimals.slice(3)} ms`;
  },
  /** Three digits and a unit, as base::format_time. */
  time: (ns) => {
    const size = Math.abs(ns);
    const [unit, name] = size >= 1e9 ? [1e9, "s"] : size >= 1e6 ? [1e6, "ms"] : size >= 1e3 ? [1e3, "us"] : [1, "ns"];
    const scaled = ns / unit;
    return `${scaled.toFixed(Math.abs(scaled) >= 100 || scaled === 0 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2)} ${name}`;
  },
  count: (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ","),
  percent: (share, decimals = 0) => `${(100 * share).toFixed(decimals)} %`,
  plural: (count, word) => `${format.count(count)} ${word}${count === 1 ? "" : "s"}`,
};

/** The smallest of 1, 2, 5 x 10^k that is at least `least`. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const digit of [1, 2, 5]) if (digit * power >= least) return digit * power;
  return 10 * power;
}

/** Ticks from 0 to `end`, at most `most` of them. */
function ticks(end, most) {
  if (!(end > 0)) return [0];
  const step = niceStep(end / most), values = [];
  for (let i = 0; i * step <= end * 1.0001; ++i) values.push(i * step);
  return values;
}

/** One tooltip for the page: lines of text, the first one strong; a line may be [label, value]. */
const tip = {
  show(x, y, lines) {
    const box = document.getElementById("tip");
    box.replaceChildren(...lines.map((line) =>
      Array.isArray(line) ? el("div", {class: "pair"}, el("span", {}, line[0]), el("b", {}, line[1])) : el("div", {}, line)));
    box.hidden = false;
    const width = box.offsetWidth, height = box.offsetHeight, gap = 14;
    const right = x + gap + width < innerWidth ? x + gap : x - gap - width;
    const below = y + gap + height < innerHeight ? y + gap : y - gap - height;
    box.style.left = `${Math.max(4, right)}px`;
    box.style.top = `${Math.max(4, below)}px`;
  },
  hide() {
    document.getElementById("tip").hidden = true;
  },
};
window.addEventListener("keydown", (event) => event.key === "Escape" && tip.hide());
window.addEventListener("scroll", () => tip.hide(), {passive: true, capture: true});

/** A colour or another custom property of the current theme. */
const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/**
 * Calls draw(context, width) with a canvas of `height` CSS pixels as wide as `host`: now, and again when the width, the
 * theme or the medium changes. Returns the canvas.
 */
function drawing(host, height, draw) {
  const canvas = el("canvas", {});
  canvas.style.height = `${height}px`;
  host.append(canvas);
  const redraw = () => {
    const width = host.clientWidth, scale = window.devicePixelRatio || 1;
    if (width === 0) return;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    draw(context, width);
  };
  new ResizeObserver(redraw).observe(host);
  redraws.push(redraw);
  redraw();
  return canvas;
}
const redraws = [];
const redrawAll = () => redraws.forEach((redraw) => redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
window.addEventListener("beforeprint", () => {
  document.documentElement.classList.add("on-paper");
  redrawAll();
});
window.addEventListener("afterprint", () => {
  document.documentElement.classList.remove("on-paper");
  redrawAll();
});

/**
 * Fills <section id>: build(section) adds the content below the heading. A section that fails says so and leaves the
 * others standing.
 */
function section(id, title, build) {
  const place = document.getElementById(id);
  place.hidden = false;
  place.setAttribute("aria-labelledby", `${id}-title`);
  place.append(el("h2", {id: `${id}-title`}, title));
  document.getElementById("nav").append(el("a", {href: `#${id}`}, title));
  try {
    build(place);
  } catch (error) {
    reportError(`${id}: ${error.message}`);
    place.append(el("p", {class: "note"}, "This part could not be shown; the JSON of the result holds it."));
  }
}
