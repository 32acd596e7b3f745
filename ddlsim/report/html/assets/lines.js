// Curves, by uPlot: zoom by dragging or keys, values under the pointer, axes to choose from.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const MOST_POINTS_MARKED = 60;
const WHOLE_STEPS = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));

function drawLines(host, figure) {
  let plot = null;
  let axis = 0;
  const hidden = new Set();
  const controls = element("div", "controls");
  const legend = element("div", "legend");
  const chart = element("div", "chart");
  chart.tabIndex = 0;
  chart.setAttribute("role", "img");
  chart.setAttribute(
    "aria-label",
    `${host.dataset.title}. Arrow keys move through the points, plus and minus zoom, Escape shows everything; the same numbers are in the table below.`,
  );
  host.append(controls, chart, legend);
  const tip = tooltip(chart);
  const say = announcer(host);

  const ownPoints = figure.series.some((one) => one.x);

  // The points of the chosen axis, ascending, and for each line the number of its point there; -1: it has none.
  function grid() {
    if (!ownPoints) {
      const x = figure.x[axis].values;
      const known = x.map((v, i) => i).filter((i) => x[i] !== null);
      return { x: known.map((i) => x[i]), numbers: figure.series.map(() => known) };
    }
    const places = new Map();
    for (const [index, one] of figure.series.entries()) {
      const seen = new Map(); // a line may have several points at one place: nothing was sent between them
      for (const [i, x] of one.x[axis].entries()) {
        if (x === null) continue;
        const nth = seen.get(x) || 0;
        seen.set(x, nth + 1);
        const key = `${x} ${nth}`;
        if (!places.has(key)) places.set(key, { x, nth, numbers: figure.series.map(() => -1) });
        places.get(key).numbers[index] = i;
      }
    }
    const found = [...places.values()].sort((a, b) => a.x - b.x || a.nth - b.nth);
    return { x: found.map((one) => one.x), numbers: figure.series.map((_, index) => found.map((one) => one.numbers[index])) };
  }

  // Of a line with points of its own, the one that is nearest to the pointer.
  function nearest(u, index, at, x) {
    const values = u.data[index];
    if (!ownPoints || at === null || at === undefined || values[at] !== null) return at;
    let [left, right] = [at, at];
    while (left >= 0 && values[left] === null) left -= 1;
    while (right < values.length && values[right] === null) right += 1;
    if (left < 0) return right < values.length ? right : at;
    if (right >= values.length) return left;
    return x - u.data[0][left] <= u.data[0][right] - x ? left : right;
  }

  function columns() {
    const { x, numbers } = grid();
    const pick = (values, index) => numbers[index].map((i) => (i < 0 ? null : values[i])).map((v) => (figure.log && !(v > 0) ? null : v));
    const data = [x];
    const series = [{}];
    const bands = [];
    for (const [index, one] of figure.series.entries()) {
      const stroke = paletteColor(one.color);
      const show = !hidden.has(index);
      data.push(pick(one.values, index));
      series.push({
        label: one.label,
        stroke,
        show,
        width: one.thin ? 1 : 2,
        dash: DASHES[one.dash % DASHES.length],
        spanGaps: figure.style === "line",
        points: { show: figure.style === "points" || one.values.length === 1 || (ownPoints ? one.values.length <= MOST_POINTS_MARKED : undefined), size: figure.style === "points" ? 8 : 5, fill: stroke },
        paths: pathsOf(figure.style),
        fill: figure.style === "bars" ? `${stroke}99` : undefined,
      });
    }
    for (const [index, one] of figure.series.entries()) {
      if (!one.low) continue;
      const at = data.length;
      data.push(pick(one.high, index), pick(one.low, index));
      const edge = { label: "", stroke: "transparent", width: 0, points: { show: false }, show: !hidden.has(index), spanGaps: true };
      series.push({ ...edge, extra: true }, { ...edge, extra: true });
      bands.push({ series: [at, at + 1], fill: `${paletteColor(one.color)}26` });
    }
    return { data, series, bands };
  }

  function pathsOf(style) {
    if (style === "step") return uPlot.paths.stepped({ align: 1 });
    if (style === "bars") return uPlot.paths.bars({ size: [0.8, 60] });
    if (style === "points") return () => null;
    return undefined;
  }

  function build() {
    const kept = plot && plot.axis === axis ? { ...plot.scales.x } : null;
    if (plot) plot.destroy();
    const { data, series, bands } = columns();
    const axisStyle = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 };
    plot = new uPlot(
      {
        width: Math.max(200, chart.clientWidth),
        height: host.clientWidth < 500 ? 240 : 300,
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: true }, points: { size: 7 }, dataIdx: nearest },
        scales: { x: { time: false, range: xRange }, y: { distr: figure.log ? 3 : 1, range: figure.log ? undefined : yRange } },
        axes: [
          { ...axisStyle, label: figure.x[axis].name, size: 32, ...whole(figure.x[axis].unit), values: (_, splits) => ticks(splits, figure.x[axis].unit), space: 70 },
          { ...axisStyle, size: 66, ...whole(figure.unit), values: (_, splits) => ticks(splits.map((v) => (figure.log && !isPower(v) ? null : v)), figure.unit) },
        ],
        series,
        bands,
        hooks: { setCursor: [hover], draw: [drawMarks] },
      },
      data,
      chart,
    );
    plot.axis = axis;
    if (kept && kept.min !== null) plot.setScale("x", { min: kept.min, max: kept.max });
  }

  function whole(unit) {
    return unit === "count" ? { incrs: WHOLE_STEPS } : {};
  }

  function isPower(v) {
    return v !== null && Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9;
  }

  function xRange(_, low, high) {
    if (low === null) return [0, 1];
    const room = figure.style === "bars" || figure.style === "points" ? 0.6 : low === high ? Math.max(1, Math.abs(low) * 0.1) : 0;
    return [low - room, high + room];
  }

  function yRange(_, low, high) {
    const values = figure.marks.map((m) => m.value).concat(low === null ? [] : [low, high]);
    if (!values.length) return [0, 1];
    const bottom = figure.from_zero ? 0 : Math.min(...values);
    const top = Math.max(...values);
    const room = (top - bottom || Math.abs(top) || 1) * 0.06;
    return [figure.from_zero ? 0 : bottom - room, top + room];
  }

  function drawMarks(u) {
    for (const [index, mark] of figure.marks.entries()) {
      const y = Math.round(u.valToPos(mark.value, "y", true));
      if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) continue;
      const stroke = paletteColor(mark.color);
      u.ctx.save();
      u.ctx.strokeStyle = stroke;
      u.ctx.lineWidth = devicePixelRatio;
      u.ctx.setLineDash([3 * devicePixelRatio, 4 * devicePixelRatio]);
      u.ctx.beginPath();
      u.ctx.moveTo(u.bbox.left, y);
      u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
      u.ctx.stroke();
      u.ctx.fillStyle = color("--muted");
      u.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      u.ctx.textAlign = "left";
      u.ctx.strokeStyle = color("--surface");
      u.ctx.lineWidth = 3 * devicePixelRatio;
      u.ctx.setLineDash([]);
      const place = [mark.label, u.bbox.left + (5 + (index % 3) * Math.min(150, u.width / 5)) * devicePixelRatio, y - 4 * devicePixelRatio];
      u.ctx.strokeText(...place);
      u.ctx.fillText(...place);
      u.ctx.restore();
    }
  }

  function hover(u) {
    const at = u.cursor.idx;
    if (at === null || at === undefined || u.cursor.left < 0) {
      tip.hide();
      return;
    }
    const rows = figure.series.flatMap((one, index) => {
      if (hidden.has(index)) return [];
      const own = ownPoints ? nearest(u, index + 1, at, u.posToVal(u.cursor.left, "x")) : at;
      const value = u.data[index + 1][own];
      if (value === null && figure.series.length > 8) return [];
      const [here, there] = [at, own].map((i) => shown(u.data[0][i], figure.x[axis].unit));
      const elsewhere = here === there ? "" : ` at ${there}`;
      return [[one.label, `${shown(value, figure.unit)}${elsewhere}`, paletteColor(one.color)]];
    });
    const { left, top } = u.over.getBoundingClientRect();
    const outer = chart.getBoundingClientRect();
    tip.show(u.cursor.left + left - outer.left, u.cursor.top + top - outer.top, `${figure.x[axis].name} ${shown(u.data[0][at], figure.x[axis].unit)}`, rows);
  }

  function zoom(factor) {
    const { min, max } = plot.scales.x;
    const middle = plot.cursor.idx !== null && plot.cursor.idx !== undefined ? plot.data[0][plot.cursor.idx] : (min + max) / 2;
    const x = plot.data[0];
    const low = Math.max(x[0], middle - (middle - min) * factor);
    const high = Math.min(x[x.length - 1], middle + (max - middle) * factor);
    if (high > low) plot.setScale("x", { min: low, max: high });
  }

  function reset() {
    plot.setData(plot.data, true);
  }

  function move(step) {
    const x = plot.data[0];
    const { min, max } = plot.scales.x;
    let at = plot.cursor.idx;
    at = at === null || at === undefined ? (step > 0 ? 0 : x.length - 1) : Math.max(0, Math.min(x.length - 1, at + step));
    if (x[at] < min || x[at] > max) {
      const half = (max - min) / 2;
      plot.setScale("x", { min: Math.max(x[0], x[at] - half), max: Math.min(x[x.length - 1], x[at] + half) });
    }
    plot.setCursor({ left: plot.valToPos(x[at], "x"), top: plot.over.clientHeight / 3 });
    say(tip.text());
  }

  const keys = { ArrowRight: () => move(1), ArrowLeft: () => move(-1), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Escape: reset };
  chart.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
  chart.addEventListener("blur", () => tip.hide());

  const axes = choice("over", figure.x.map((one) => one.name), 0, (index) => {
    axis = index;
    build();
  });
  if (figure.x.length > 1) controls.append(axes);
  const zooms = element("div", "zooms");
  zooms.append(button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("All", "Show everything", reset));
  controls.append(zooms);
  for (const [index, one] of figure.series.length > 1 ? figure.series.entries() : []) {
    const entry = button("", `${one.label}: show or hide`, () => {
      if (!hidden.delete(index)) hidden.add(index);
      entry.setAttribute("aria-pressed", String(!hidden.has(index)));
      build();
    });
    entry.setAttribute("aria-pressed", "true");
    entry.append(swatchOf(one), element("span", "", one.label));
    legend.append(entry);
  }

  // A row per line and point, for lines with points of their own.
  function tableOfLines() {
    const bands = figure.series.some((one) => one.low);
    return {
      header: ["line", ...figure.x.map((one) => one.name), figure.y || "value", ...(bands ? ["band from", "band to"] : [])],
      rows: figure.series.flatMap((one) =>
        one.values.map((value, i) => [
          one.label,
          ...figure.x.map((each, a) => shown(one.x[a][i], each.unit)),
          ...[value, ...(bands ? [one.low ? one.low[i] : null, one.high ? one.high[i] : null] : [])].map((v) => shown(v, figure.unit)),
        ]),
      ),
    };
  }

  function swatchOf(one) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", "22");
    svg.setAttribute("height", "10");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const box = { x1: 1, x2: 21, y1: 5, y2: 5, "stroke-width": one.thin ? 1.5 : 3, "stroke-dasharray": DASHES[one.dash % DASHES.length].join(" ") };
    for (const [name, value] of Object.entries(box)) line.setAttribute(name, value);
    line.setAttribute("class", one.color < 0 ? "stroke-neutral" : `stroke-${one.color % PALETTE_SIZE}`);
    svg.append(line);
    return svg;
  }

  new ResizeObserver(() => {
    if (plot && chart.clientWidth && chart.clientWidth !== plot.width) plot.setSize({ width: Math.max(200, chart.clientWidth), height: plot.height });
  }).observe(chart);
  build();
  return {
    redraw: build,
    table: () => (ownPoints ? tableOfLines() : {
      header: [...figure.x.map((one) => one.name), ...figure.series.flatMap((one) => (one.low ? [one.label, "lowest", "highest"] : [one.label]))],
      rows: figure.x[0].values.map((_, i) => [
        ...figure.x.map((one) => shown(one.values[i], one.unit)),
        ...figure.series.flatMap((one) => (one.low ? [one.values, one.low, one.high] : [one.values]).map((v) => shown(v[i], figure.unit))),
      ]),
    }),
    state: () => {
      const x = plot.data[0];
      const { min, max } = plot.scales.x;
      const zoomed = x.length > 1 && (min > x[0] || max < x[x.length - 1]);
      return { axis, hidden: [...hidden].map((index) => figure.series[index].label), zoom: zoomed ? { min, max } : null };
    },
    restore: (state) => {
      if (state.axis && axes.children[state.axis]) axes.children[state.axis].click();
      for (const [index, one] of figure.series.entries()) if (state.hidden.includes(one.label)) legend.children[index].click();
      if (state.zoom) plot.setScale("x", state.zoom);
    },
  };
}
