/** A chart of the last hour, drawn when it is in sight, with its legend and the table behind it. */

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { minuteOf } from "./format.js";
import { fill, list, row, text } from "./page.js";

const SVG = "http://www.w3.org/2000/svg";
const FONT = "12px system-ui, sans-serif";

export class Chart {
  #section;
  #box;
  #format;
  #points;
  #plot = null;
  #series = [];
  #data = [[]];
  #isInSight = false;
  #isStale = true;

  /** `format` writes a value of the vertical axis; `points`: values may stand alone. */
  constructor(section, format, { points = false } = {}) {
    this.#section = section;
    this.#box = section.querySelector(".plot");
    this.#format = format;
    this.#points = points ? { size: 5 } : { show: false };
    section.querySelector("details").addEventListener("toggle", () => this.#tabulate());
    new ResizeObserver(() => this.#resize()).observe(this.#box);
    new IntersectionObserver((entries) => {
      this.#isInSight = entries.at(-1).isIntersecting;
      this.#draw();
    }).observe(this.#box);
  }

  /** Show series ({ label, color, dash, axis }); `data` has the times, and then each one's values. */
  set(series, data) {
    const isNew = JSON.stringify(series) !== JSON.stringify(this.#series);
    this.#data = data;
    this.#isStale = true;
    if (isNew) {
      this.#series = series;
      this.#explain();
      this.forget();
    }
    this.#draw();
    this.#tabulate();
  }

  /** Draw anew: the colours have changed. */
  forget() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#isStale = true;
    this.#draw();
  }

  #draw() {
    if (!this.#isStale || !this.#series.length || !this.#box.clientWidth) return;
    // Out of sight the first picture is enough.
    if (this.#plot && !this.#isInSight) return;
    this.#isStale = false;
    if (this.#plot) this.#plot.setData(this.#data);
    else this.#plot = new uPlot(this.#options(), this.#data, this.#box);
  }

  #resize() {
    if (this.#plot) this.#plot.setSize(this.#size());
    else this.#draw();
  }

  #size() {
    return { width: this.#box.clientWidth, height: this.#box.clientHeight };
  }

  #options() {
    const ink = this.#color("--op-soft");
    const grid = { stroke: this.#color("--op-line"), width: 1 };
    const axis = { stroke: ink, grid, ticks: { show: false }, font: FONT };
    return {
      ...this.#size(),
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, size: 28, space: 70, values: (plot, splits) => splits.map(minuteOf) },
        { ...axis, size: 62, space: 30, values: (plot, splits) => splits.map(this.#format) },
      ],
      series: [{}, ...this.#series.map((one) => this.#line(one))],
    };
  }

  #line({ label, color, dash }) {
    return { label, stroke: this.#color(color), width: 2, dash, points: this.#points };
  }

  #color(name) {
    return getComputedStyle(this.#section).getPropertyValue(name).trim();
  }

  #explain() {
    const legend = this.#section.querySelector(".legend");
    legend.replaceChildren(
      ...this.#series.map(({ label, color, dash }) => {
        const sample = document.createElementNS(SVG, "svg");
        const line = sample.appendChild(document.createElementNS(SVG, "line"));
        for (const [name, value] of Object.entries({ x1: 0, x2: "100%", y1: "50%", y2: "50%", "stroke-width": 2 })) {
          line.setAttribute(name, value);
        }
        if (dash) line.setAttribute("stroke-dasharray", dash.join(" "));
        line.style.stroke = `var(${color})`;
        const item = document.createElement("li");
        item.append(sample, label);
        return item;
      }),
    );
  }

  /** Fill the table, newest first, if somebody looks at it. */
  #tabulate() {
    if (!this.#section.querySelector("details").open || !this.#series.length) return;
    const table = this.#section.querySelector("table");
    const columns = this.#series.length + 1;
    if (table.tHead?.rows[0].cells.length !== columns || this.#headings(table) !== this.#labels()) {
      this.#head(table);
    }
    const [times, ...values] = this.#data;
    const rows = times.map((at, place) => ({ at, values: values.map((column) => column[place]) }));
    list(table.tBodies[0], rows.reverse(), ({ at }) => at, () => row(columns, 1), (node, item) => {
      fill(node.cells, [minuteOf(item.at), ...item.values.map((value) => this.#format(value))]);
    });
  }

  #labels() {
    return this.#series.map(({ label }) => label).join();
  }

  #headings(table) {
    return [...table.tHead.rows[0].cells].slice(1).map(({ textContent }) => textContent).join();
  }

  #head(table) {
    table.replaceChildren(document.createElement("thead"), document.createElement("tbody"));
    const head = table.tHead.insertRow();
    for (const label of ["Minute", ...this.#series.map((one) => one.label)]) {
      const cell = head.appendChild(document.createElement("th"));
      cell.scope = "col";
      text(cell, label);
      if (label !== "Minute") cell.className = "op-number";
    }
  }
}
