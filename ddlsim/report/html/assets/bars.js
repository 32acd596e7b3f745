// Horizontal bars made of parts.
function drawBars(host, figure) {
  const chart = element("div", "chart bars");
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", `${host.dataset.title}. The same numbers are in the table below.`);
  const scale = element("div", "scale");
  host.append(chart, scale);
  const tip = tooltip(chart);
  const sums = figure.values.map((parts) => parts.reduce((a, b) => a + b, 0));
  const most = Math.max(...sums, 1e-300);
  figure.labels.forEach((label, b) => {
    const row = element("div", "bar");
    const track = element("div", "track");
    figure.parts.forEach((part, p) => {
      const value = figure.values[b][p];
      if (!value) return;
      const piece = element("i", `piece fill-${p % PALETTE_SIZE}`);
      piece.style.width = `${(100 * value) / most}%`;
      piece.addEventListener("pointerenter", () => {
        const share = sums[b] ? ` (${((100 * value) / sums[b]).toFixed(1)} %)` : "";
        tip.show(piece.offsetLeft + piece.offsetWidth / 2, row.offsetTop, label, [[part, shown(value, figure.unit) + share, color(`--c${p % PALETTE_SIZE}`)]]);
      });
      piece.addEventListener("pointerleave", () => tip.hide());
      track.append(piece);
    });
    row.append(element("span", "bar-label", label), track, element("b", "", shown(sums[b], figure.unit)));
    chart.append(row);
  });
  figure.parts.forEach((part, p) => {
    const entry = element("span", "entry");
    entry.append(element("i", `swatch fill-${p % PALETTE_SIZE}`), element("span", "", part));
    scale.append(entry);
  });
  return {
    redraw() {},
    table: () => ({
      header: ["", ...figure.parts, "sum"],
      rows: figure.labels.map((label, b) => [label, ...figure.values[b].map((v) => shown(v, figure.unit)), shown(sums[b], figure.unit)]),
    }),
  };
}
