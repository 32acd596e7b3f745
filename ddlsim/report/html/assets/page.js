// Draws every figure of the page, its table twin, and keeps a live page up to date.
const KINDS = { lines: drawLines, heat: drawHeat, bars: drawBars };
const drawn = new Map();

function tableOf({ caption, header, rows }) {
  const table = element("table");
  if (caption) table.append(element("caption", "", caption));
  const head = element("thead");
  const line = element("tr");
  for (const title of header) {
    const cell = element("th", "", title);
    cell.scope = "col";
    line.append(cell);
  }
  head.append(line);
  const body = element("tbody");
  for (const row of rows) {
    const tr = element("tr");
    row.forEach((text, index) => {
      const cell = element(index ? "td" : "th", "", text);
      if (!index) cell.scope = "row";
      tr.append(cell);
    });
    body.append(tr);
  }
  table.append(head, body);
  return table;
}

function draw(host, figure) {
  const made = KINDS[figure.kind](host, figure);
  drawn.set(host.id, made);
  const twin = host.parentElement.querySelector("details.twin");
  const fillTwin = () => {
    const place = twin.querySelector(".scroll");
    if (twin.open) place.replaceChildren(tableOf(made.table()));
  };
  twin.addEventListener("toggle", fillTwin);
  host.addEventListener("frame", fillTwin);
  fillTwin();
  host.dataset.drawn = "true";
}

function drawAll(figures, only) {
  for (const host of document.querySelectorAll("[data-figure]")) if (!only || only.has(host.id)) draw(host, figures[host.dataset.figure]);
}

function figuresOf(root) {
  return JSON.parse(root.querySelector("#figures").textContent);
}

function redrawAll() {
  for (const made of drawn.values()) made.redraw();
}

// -- light, dark and paper -----------------------------------------------------------------------------------------
const THEMES = ["auto", "light", "dark"];
const themeButton = document.querySelector("#theme");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  themeButton.textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[name];
  themeButton.setAttribute("aria-label", `Colors: ${name}`);
  redrawAll();
}
themeButton.addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
let beforePaper = "auto";
addEventListener("beforeprint", () => {
  beforePaper = document.documentElement.dataset.theme;
  setTheme("light");
});
addEventListener("afterprint", () => setTheme(beforePaper));
document.querySelector("#print").addEventListener("click", () => print());

for (const place of document.querySelectorAll("[data-copy]")) {
  const copy = button("Copy", "Copy the command", () => {
    navigator.clipboard.writeText(place.textContent).then(() => {
      copy.textContent = "Copied";
    });
  });
  if (navigator.clipboard) place.after(copy);
}

let figures = figuresOf(document);
drawAll(figures);

// -- a run that goes on --------------------------------------------------------------------------------------------
const live = document.querySelector("#live");
const POLL_MS = 3000;

function keep(section) {
  const host = section.querySelector("[data-figure]");
  return {
    open: [...section.querySelectorAll("details")].map((one) => one.open),
    state: host && drawn.get(host.id) && drawn.get(host.id).state ? drawn.get(host.id).state() : null,
  };
}

function update(fresh) {
  const found = figuresOf(fresh);
  const main = document.querySelector("main");
  const redo = new Set();
  const known = new Map([...main.children].map((child) => [child.id, child]));
  const next = [...fresh.querySelector("main").children].map((child) => {
    const old = known.get(child.id);
    const host = child.querySelector("[data-figure]");
    const same = old && old.dataset.hash === child.dataset.hash;
    if (same) return old;
    const made = document.importNode(child, true);
    if (old) {
      const kept = keep(old);
      [...made.querySelectorAll("details")].forEach((one, i) => {
        one.open = kept.open[i] ?? one.open;
      });
      made.kept = kept.state;
    }
    if (host) redo.add(host.id);
    return made;
  });
  const top = scrollY;
  main.replaceChildren(...next);
  document.querySelector("#head").replaceChildren(...document.importNode(fresh.querySelector("#head"), true).childNodes);
  document.querySelector("nav").replaceChildren(...document.importNode(fresh.querySelector("nav"), true).childNodes);
  figures = found;
  drawAll(figures, redo);
  for (const section of main.children)
    if (section.kept) {
      const made = drawn.get(section.querySelector("[data-figure]").id);
      if (made.restore) made.restore(section.kept);
      section.kept = null;
    }
  scrollTo(0, top);
}

async function poll(version, ended) {
  let next = version;
  let over = ended;
  try {
    const answer = await fetch(`page?after=${encodeURIComponent(version)}`, { cache: "no-store" });
    if (answer.status === 200) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      next = fresh.documentElement.dataset.version;
      over = fresh.documentElement.dataset.ended === "true";
      update(fresh);
    }
    live.textContent = `${over ? "the run has ended, " : ""}updated ${new Date().toLocaleTimeString()}`;
    live.dataset.state = "on";
  } catch (error) {
    live.textContent = "the run's process has ended or cannot be reached";
    live.dataset.state = "off";
  }
  if (!over) setTimeout(() => poll(next, over), POLL_MS);
}
const { version, ended } = document.documentElement.dataset;
if (version) setTimeout(() => poll(version, ended === "true"), POLL_MS);
