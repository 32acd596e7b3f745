// Nodes in a circle, ordered as the rows of the matrix; a line from each sender, as strong as its value.
const MOST_EDGES = 1500;

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawGraph(stage, figure, frames) {
  const count = figure.rows.length;
  const size = 460;
  const middle = size / 2;
  const radius = middle - 26;
  const most = Math.max(...frames.map((frame) => frame.most));
  const at = figure.rows.map((_, i) => {
    const angle = (2 * Math.PI * i) / count - Math.PI / 2;
    return [middle + radius * Math.cos(angle), middle + radius * Math.sin(angle)];
  });
  const root = svg("svg", { viewBox: `0 0 ${size} ${size}`, class: "graph", role: "img", "aria-label": `${figure.row_title} and ${figure.column_title} as a graph; the same numbers are in the table below.` });
  root.style.display = "none";
  const edges = svg("g", {});
  const dots = svg("g", {});
  root.append(edges, dots);
  stage.append(root);
  const tip = tooltip(stage);
  figure.rows.forEach((label, i) => {
    const cluster = figure.clusters.length ? figure.clusters[i] : -1;
    const dot = svg("g", { class: "dot" });
    dot.append(
      svg("circle", { cx: at[i][0], cy: at[i][1], r: count > 40 ? 6 : 11, class: cluster < 0 ? "fill-neutral" : `fill-${cluster % PALETTE_SIZE}` }),
    );
    if (count <= 40) dot.append(svg("text", { x: at[i][0], y: at[i][1] + 3.5, "text-anchor": "middle" }, label));
    dot.addEventListener("pointerenter", () => focus(i));
    dot.addEventListener("pointerleave", () => focus(null));
    dots.append(dot);
  });

  let frame = frames[0];
  function focus(node) {
    for (const line of edges.children) line.classList.toggle("faint", node !== null && Number(line.dataset.from) !== node && Number(line.dataset.to) !== node);
    if (node === null) {
      tip.hide();
      return;
    }
    const known = (v) => v ?? 0;
    const out = figure.rows.map((_, j) => known(frame.values[node * count + j]));
    const into = figure.rows.map((_, j) => known(frame.values[j * count + node]));
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    const box = root.getBoundingClientRect();
    const outer = stage.getBoundingClientRect();
    const zoom = box.width / size;
    tip.show(at[node][0] * zoom + box.left - outer.left, at[node][1] * zoom + box.top - outer.top, `node ${figure.rows[node]}`, [
      [figure.row_title.split(" (")[0], `${shown(sum(out), frame.unit)} with ${out.filter((v) => v > 0).length}`, ""],
      [figure.column_title.split(" (")[0], `${shown(sum(into), frame.unit)} with ${into.filter((v) => v > 0).length}`, ""],
    ]);
  }

  function show(visible, index) {
    root.style.display = visible ? "block" : "none";
    tip.hide();
    if (!visible) return;
    frame = frames[index];
    const found = [];
    for (let i = 0; i < count; i++)
      for (let j = 0; j < count; j++) {
        const value = frame.values[i * count + j];
        if (i !== j && value > 0) found.push([value, i, j]);
      }
    found.sort((a, b) => b[0] - a[0]);
    edges.replaceChildren(
      ...found.slice(0, MOST_EDGES).map(([value, i, j]) => {
        const bend = [middle + (((at[i][0] + at[j][0]) / 2 - middle) * 3) / 5, middle + (((at[i][1] + at[j][1]) / 2 - middle) * 3) / 5];
        const share = value / most;
        const line = svg("path", {
          d: `M${at[i].map((v) => v.toFixed(1))}Q${bend.map((v) => v.toFixed(1))} ${at[j].map((v) => v.toFixed(1))}`,
          class: figure.clusters.length ? `edge stroke-${figure.clusters[i] % PALETTE_SIZE}` : "edge stroke-neutral",
          "stroke-opacity": (0.12 + 0.75 * share).toFixed(3),
          "stroke-width": (0.5 + 3 * share).toFixed(2),
        });
        line.dataset.from = i;
        line.dataset.to = j;
        return line;
      }),
    );
  }
  return { show };
}
