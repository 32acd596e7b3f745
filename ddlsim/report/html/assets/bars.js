// Horizontal bars made of parts.
function drawBars(host, figure) {
  const chart = element("div", `chart bars${figure.spread.length ? " spread" : ""}`);
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", `${host.dataset.title}. The same numbers are in the table below.`);
  const scale = element("div", "scale");
  host.append(chart, scale);
  const tip = tooltip(chart);
  const sums = figure.values.map((parts) => parts.reduce((a, b) => a + b, 0));
  const most = Math.max(...sums.map((sum, b) => sum + (figure.spread[b] || 0)), 1e-300);
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
    const spread = figure.spread.length ? figure.spread[b] : 0;
    if (spread) {
      const whisker = element("i", "whisker");
      const from = Math.max(0, sums[b] - spread);
      whisker.style.left = `${(100 * from) / most}%`;
      whisker.style.width = `${(100 * (sums[b] + spread - from)) / most}%`;
      track.append(whisker);
    }
    row.append(element("span", "bar-label", label), track, element("b", "", shown(figure.values[b][0] === null ? null : sums[b], figure.unit) + (spread ? ` ± ${shown(spread, figure.unit)}` : "")));
    chart.append(row);
  });
  if (figure.parts.length > 1) figure.parts.forEach((part, p) => {
    const entry = element("span", "entry");
    entry.append(element("i", `swatch fill-${p % PALETTE_SIZE}`), element("span", "", part));
    scale.append(entry);
  });
  return {
    redraw() {},
    table: () => ({
      header: ["", ...figure.parts, figure.spread.length ? "deviation" : "sum"],
      rows: figure.labels.map((label, b) => [label, ...[...figure.values[b], figure.spread.length ? figure.spread[b] : sums[b]].map((v) => shown(v, figure.unit))]),
    }),
  };
}
