// Values as colors: one picture, several to choose from, or a slider over moments; nodes by nodes also as a graph.
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const STOPS = VIRIDIS.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));

const CATEGORY_OFFSET = 2; // not the colors of clusters 0 and 1

function heatColor(share) {
  const at = Math.max(0, Math.min(1, share)) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const mix = STOPS[low].map((v, i) => Math.round(v + (STOPS[low + 1][i] - v) * (at - low)));
  return `rgb(${mix.join(",")})`;
}

// Undoes html/encode.py: whole numbers of 8 or 16 bits, 0 where there is nothing.
function unpacked(frame) {
  const text = atob(frame.data);
  const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
  const codes = frame.bits === 8 ? bytes : new Uint16Array(bytes.buffer);
  return Array.from(codes, (code) => (code === 0 ? null : frame.low + (code - 1) * frame.step));
}

function drawHeat(host, figure) {
  const frames = figure.frames.map((frame) => ({ ...frame, values: unpacked(frame) }));
  const [rows, columns] = [figure.rows.length, figure.columns.length];
  let now = 0;
  let view = "matrix";
  let cell = null;
  const controls = element("div", "controls");
  const stage = element("div", "chart heat");
  const canvas = element("canvas");
  const scale = element("div", "scale");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute(
    "aria-label",
    `${host.dataset.title}. Rows: ${figure.row_title}, columns: ${figure.column_title}. Arrow keys move through the cells; the same numbers are in the table below.`,
  );
  stage.append(canvas);
  host.append(controls, stage, scale);
  const tip = tooltip(stage);
  const say = announcer(host);
  const graph = figure.square && rows <= 64 ? drawGraph(stage, figure, frames) : null;
  let layout = null;

  function range(frame) {
    if (figure.ramp === "share") return { low: 0, high: 1 };
    return { low: frame.least, high: frame.most > frame.least ? frame.most : frame.least + 1 };
  }

  // From the color of nothing to that of everything.
  function shareColor(share) {
    return `color-mix(in srgb, ${color("--c2")} ${(100 * share).toFixed(1)}%, ${color("--empty")})`;
  }

  function fill(value, frame) {
    if (figure.categories.length) return paletteColor(value + CATEGORY_OFFSET);
    const { low, high } = range(frame);
    const share = (value - low) / (high - low);
    return figure.ramp === "share" ? shareColor(share) : heatColor(share);
  }

  function measure() {
    const width = Math.max(220, stage.classList.contains("both") ? Math.min(520, stage.clientWidth / 2) : stage.clientWidth);
    const labels = Math.max(...figure.rows.map((label) => label.length), 1);
    const left = Math.min(110, 34 + 6.2 * labels);
    const inner = width - left - 8;
    const side = figure.square ? Math.min(inner, 460) : inner;
    const height = figure.square ? side : rows * Math.max(5, Math.min(18, 380 / rows));
    return { left, top: 6, width: left + side + 8, side, height, total: height + 50, cw: side / columns, ch: height / rows };
  }

  function draw() {
    const frame = frames[now];
    layout = measure();
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(layout.width * ratio);
    canvas.height = Math.round(layout.total * ratio);
    canvas.style.width = `${layout.width}px`;
    canvas.style.height = `${layout.total}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = color("--empty");
    context.fillRect(layout.left, layout.top, layout.side, layout.height);
    const palette = new Map();
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++) {
        const value = frame.values[r * columns + c];
        if (value === null) continue;
        if (!palette.has(value)) palette.set(value, fill(value, frame));
        context.fillStyle = palette.get(value);
        const [x0, x1] = [Math.round((layout.left + c * layout.cw) * ratio) / ratio, Math.round((layout.left + (c + 1) * layout.cw) * ratio) / ratio];
        const [y0, y1] = [Math.round((layout.top + r * layout.ch) * ratio) / ratio, Math.round((layout.top + (r + 1) * layout.ch) * ratio) / ratio];
        context.fillRect(x0, y0, x1 - x0, y1 - y0);
      }
    drawBorders(context);
    drawLabels(context);
    if (cell) {
      context.strokeStyle = color("--text");
      context.lineWidth = 2;
      context.strokeRect(layout.left + cell.c * layout.cw, layout.top + cell.r * layout.ch, layout.cw, layout.ch);
    }
  }

  function drawBorders(context) {
    context.strokeStyle = color("--surface");
    context.lineWidth = 2;
    context.beginPath();
    for (const border of figure.borders) {
      context.moveTo(layout.left, layout.top + border * layout.ch);
      context.lineTo(layout.left + layout.side, layout.top + border * layout.ch);
      if (!figure.square) continue;
      context.moveTo(layout.left + border * layout.cw, layout.top);
      context.lineTo(layout.left + border * layout.cw, layout.top + layout.height);
    }
    context.stroke();
  }

  function drawLabels(context) {
    context.fillStyle = color("--muted");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    const everyRow = Math.ceil(13 / layout.ch);
    for (let r = 0; r < rows; r += everyRow) context.fillText(figure.rows[r], layout.left - 5, layout.top + (r + 0.5) * layout.ch, layout.left - 20);
    context.textAlign = "center";
    const widest = Math.max(...figure.columns.map((label) => label.length)) * 6.5 + 12;
    const everyColumn = Math.ceil(widest / layout.cw);
    for (let c = 0; c < columns; c += everyColumn) context.fillText(figure.columns[c], layout.left + (c + 0.5) * layout.cw, layout.top + layout.height + 11);
    context.font = "12px system-ui, sans-serif";
    context.fillText(figure.column_title, layout.left + layout.side / 2, layout.top + layout.height + 33);
    context.save();
    context.translate(9, layout.top + layout.height / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(figure.row_title, 0, 0);
    context.restore();
  }

  function text(value, frame) {
    return figure.categories.length && value !== null ? figure.categories[value] : shown(value, frame.unit);
  }

  function drawScale() {
    const frame = frames[now];
    scale.replaceChildren();
    if (figure.categories.length) {
      figure.categories.forEach((name, index) => {
        const entry = element("span", "entry");
        const swatch = element("i", `swatch fill-${(index + CATEGORY_OFFSET) % PALETTE_SIZE}`);
        entry.append(swatch, element("span", "", name));
        scale.append(entry);
      });
      return;
    }
    const bar = element("i", "ramp");
    const shades = figure.ramp === "share" ? [shareColor(0), shareColor(1)] : VIRIDIS;
    bar.style.background = `linear-gradient(to right, ${shades.join(",")})`;
    const { low, high } = range(frame);
    const nothing = element("span", "entry");
    nothing.append(element("i", "swatch none"), element("span", "", "nothing"));
    if (frame.least === frame.most && figure.ramp !== "share") bar.style.background = heatColor(0);
    scale.append(element("span", "", shown(low, frame.unit)), bar);
    if (frame.least < frame.most) scale.append(element("span", "", shown(high, frame.unit)));
    if (frame.values.includes(null)) scale.append(nothing);
  }

  function point(r, c) {
    cell = { r, c };
    draw();
    const frame = frames[now];
    const value = frame.values[r * columns + c];
    const rowsOfTip = [[frames.length > 1 && figure.choose === "select" ? frame.label : "value", text(value, frame), value === null ? "" : fill(value, frame)]];
    tip.show(canvas.offsetLeft + layout.left + (c + 0.5) * layout.cw, layout.top + (r + 0.5) * layout.ch, `${figure.row_title.split(" (")[0]} ${figure.rows[r]}, ${figure.column_title.split(" (")[0]} ${figure.columns[c]}`, rowsOfTip);
  }

  function leave() {
    cell = null;
    tip.hide();
    draw();
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left - layout.left) / layout.cw);
    const r = Math.floor((event.clientY - box.top - layout.top) / layout.ch);
    if (c < 0 || r < 0 || c >= columns || r >= rows) {
      if (cell) leave();
    } else if (!cell || cell.r !== r || cell.c !== c) point(r, c);
  });
  canvas.addEventListener("pointerleave", () => cell && leave());
  canvas.addEventListener("blur", () => cell && leave());
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (event.key === "Escape" && cell) leave();
    if (!step) return;
    const from = cell || { r: 0, c: 0 };
    const moved = cell ? step : [0, 0];
    point(Math.max(0, Math.min(rows - 1, from.r + moved[0])), Math.max(0, Math.min(columns - 1, from.c + moved[1])));
    say(tip.text());
    event.preventDefault();
  });

  // A graph stands beside its matrix where there is room, and takes its place where there is none.
  function show() {
    const both = graph !== null && stage.clientWidth >= 720;
    stage.classList.toggle("both", both);
    if (views) views.hidden = both;
    canvas.hidden = !both && view === "graph";
    if (graph) graph.show(both || view === "graph", now);
    if (!canvas.hidden) draw();
    drawScale();
    host.dispatchEvent(new CustomEvent("frame"));
  }

  function addSlider() {
    const box = element("label", "slider");
    const input = element("input");
    input.type = "range";
    input.min = 0;
    input.max = frames.length - 1;
    input.value = now;
    const told = element("output", "", frames[now].label);
    const go = (index) => {
      now = index;
      input.value = index;
      told.textContent = frames[now].label;
      input.setAttribute("aria-valuetext", frames[now].label);
      if (cell) cell = null;
      tip.hide();
      show();
    };
    input.addEventListener("input", () => go(Number(input.value)));
    input.setAttribute("aria-valuetext", frames[now].label);
    box.append(element("span", "", figure.frame_title), input, told);
    let timer = null;
    const play = button("▶", "Play", () => {
      if (timer) {
        clearInterval(timer);
        timer = null;
      } else {
        if (now === frames.length - 1) go(0);
        timer = setInterval(() => {
          if (!host.isConnected || now >= frames.length - 1) {
            clearInterval(timer);
            timer = null;
            play.textContent = "▶";
          } else go(now + 1);
        }, 160);
      }
      play.textContent = timer ? "❚❚" : "▶";
    });
    controls.append(box, play);
    return go;
  }

  let go = null;
  let views = null;
  if (graph) {
    views = choice("show as", ["matrix", "graph"], 0, (index) => {
      view = index ? "graph" : "matrix";
      show();
    });
    controls.append(views);
  }
  if (frames.length > 1 && figure.choose === "slider") go = addSlider();
  else if (frames.length > 1) controls.append(choice(figure.frame_title || "show", frames.map((f) => f.label), 0, (index) => {
    now = index;
    show();
  }));
  let width = stage.clientWidth;
  new ResizeObserver(() => {
    if (stage.clientWidth && stage.clientWidth !== width) {
      width = stage.clientWidth;
      show();
    }
  }).observe(stage);
  show();
  return {
    redraw: show,
    table: () => ({
      caption: frames.length > 1 ? `${figure.frame_title} ${frames[now].label}` : "",
      header: [`${figure.row_title} \\ ${figure.column_title}`, ...figure.columns],
      rows: figure.rows.map((label, r) => [label, ...figure.columns.map((_, c) => text(frames[now].values[r * columns + c], frames[now]))]),
    }),
    state: () => ({ now }),
    restore: (state) => go && go(Math.min(state.now, frames.length - 1)),
  };
}
