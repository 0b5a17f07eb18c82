// A chart of two counts per second. It is drawn once a frame at most, from a fixed number of points.
const NS = "http://www.w3.org/2000/svg";
const SECONDS = 120;
// counts of the newest second are not complete yet
const DELAY = 2;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 6, 8, 20];

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Returns the largest value of the axis, at least 4. Its half is a round number, too.
function top(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 4)));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((most) => most >= Math.max(value, 4));
}

export const short = (value) => {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${Math.round(value / 1e3)} k`;
  return value >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
};

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export class Chart {
  constructor(svg, output, names) {
    Object.assign(this, { svg, output, names });
    svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    svg.addEventListener("pointerleave", () => this.point(null));
  }

  point(x) {
    this.pointed = x;
    this.mark();
  }

  // `knownSince` is the time from which the first count is known.
  draw(now, first, second, knownSince) {
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (!width) return;
    const last = Math.floor(now / 1000) - DELAY;
    const seconds = Array.from({ length: SECONDS }, (_, index) => last - SECONDS + 1 + index);
    const counts = [first, second].map((series) => seconds.map((at) => series.at(at)));
    const most = top(Math.max(...counts.flat()));
    const x = (index) => LEFT + (index / (SECONDS - 1)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / most) * (height - TOP - BOTTOM);
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const line = y(part * most);
      parts.push(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: line, y2: line }));
      parts.push(element("text", { x: LEFT - 6, y: line + 4, "text-anchor": "end" }, short(part * most)));
    }
    seconds.forEach((at, index) => {
      if (at % 30 === 0 && x(index) > LEFT + 24 && x(index) < width - 24) {
        parts.push(element("text", { x: x(index), y: height - 4, "text-anchor": "middle" }, clock(at * 1000)));
      }
    });
    const known = knownSince === null ? SECONDS : Math.max(0, Math.ceil(knownSince / 1000) - seconds[0]);
    const names = ["admitted", "refused"];
    counts.forEach((values, which) => {
      const from = which === 0 ? known : 0;
      const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).slice(from);
      if (points.length < 2) return;
      const area = `M${x(from).toFixed(1)},${y(0)}L${points.join("L")}L${x(SECONDS - 1)},${y(0)}Z`;
      parts.push(element("path", { class: `area ${names[which]}`, d: area }));
      parts.push(element("path", { class: names[which], d: `M${points.join("L")}` }));
    });
    this.cross = element("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
    this.svg.replaceChildren(...parts, this.cross);
    const told = counts.map((values, which) => `${short(values.at(-1))} ${this.names[which]}`).join(", ");
    this.svg.setAttribute("aria-label", `${told} per second at ${clock(last * 1000)}; at most ${short(Math.max(...counts.flat()))} in two minutes`);
    Object.assign(this, { seconds, counts, known, x });
    this.mark();
    return counts.map((values) => values.at(-1));
  }

  // Shows the counts below the pointer.
  mark() {
    const { pointed, seconds, counts, known, x } = this;
    if (!seconds) return;
    if (pointed === null || pointed === undefined) {
      this.output.textContent = "";
      this.cross.setAttribute("visibility", "hidden");
      return;
    }
    const part = (pointed - x(0)) / (x(SECONDS - 1) - x(0));
    const index = Math.min(SECONDS - 1, Math.max(0, Math.round(part * (SECONDS - 1))));
    const told = counts.map((values, which) => {
      const count = which === 0 && index < known ? "?" : short(values[index]);
      return `${count} ${this.names[which]}`;
    });
    this.output.textContent = `${clock(seconds[index] * 1000)}: ${told.join(", ")}`;
    for (const side of ["x1", "x2"]) this.cross.setAttribute(side, x(index));
    this.cross.setAttribute("visibility", "visible");
  }
}
