// Values as text, as report/text.py writes them.
function trimmed(value, digits) {
  return value.toFixed(digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

function significant(value, digits) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(digits - 1);
  return trimmed(value, Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
}

// The nearest whole number, the even one of two as near, as Python's round has it.
function rounded(value) {
  const below = Math.floor(value);
  const over = value - below;
  return over > 0.5 || (over === 0.5 && below % 2 === 1) ? below + 1 : below;
}

const FORMATS = {
  number: (v) => significant(v, 4),
  count: (v) => (Number.isInteger(v) ? v.toLocaleString("en-US") : significant(v, 5)),
  percent: (v) => `${(100 * v).toFixed(2)} %`,
  bytes: (v) => {
    let size = v;
    for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
      if (Math.abs(size) < 999.5 || unit === "TB") return `${significant(size, 3)} ${unit}`;
      size /= 1000;
    }
    return "";
  },
  joules: (v) => {
    const units = [[1e12, "TJ"], [1e9, "GJ"], [1e6, "MJ"], [1e3, "kJ"], [1, "J"], [1e-3, "mJ"]];
    const [size, unit] = v === 0 ? [1, "J"] : units.find(([one]) => Math.abs(v) >= 0.9995 * one) || [1e-3, "mJ"];
    return `${significant(v / size, 3)} ${unit}`;
  },
  seconds: (v) => {
    if (v < 59.95) return `${significant(v, 3)} s`;
    const two = (n, unit, rest, small) => `${Math.floor(n / unit)}${rest}${String(n % unit).padStart(2, "0")}${small}`;
    const [whole, minutes, hours] = [v, v / 60, v / 3600].map(rounded);
    if (whole < 3600) return two(whole, 60, "m", "s");
    return minutes < 1440 ? two(minutes, 60, "h", "m") : two(hours, 24, "d", "h");
  },
};

function shown(value, unit) {
  return value === null || value === undefined || Number.isNaN(value) ? "–" : FORMATS[unit](value);
}

// The texts of an axis' ticks: as few digits as tell them apart.
function ticks(values, unit) {
  if (unit !== "percent") return values.map((v) => (v === null ? "" : unit === "number" ? significant(v, 6) : shown(v, unit)));
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : 1;
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(100 * step) + 1e-9)));
  return values.map((v) => (v === null ? "" : `${(100 * v).toFixed(digits)} %`));
}

// Elements. Text is always set as text.
function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(text, title, action, className = "") {
  const made = element("button", className, text);
  made.type = "button";
  made.title = title;
  made.setAttribute("aria-label", title);
  made.addEventListener("click", action);
  return made;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const PALETTE_SIZE = 7;
function paletteColor(index) {
  return color(index < 0 ? "--neutral" : `--c${index % PALETTE_SIZE}`);
}

// A row of buttons of which one is pressed.
function choice(label, names, chosen, choose) {
  const group = element("div", "choice");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  names.forEach((name, index) => {
    const one = button(name, `${label}: ${name}`, () => {
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === one));
      choose(index);
    });
    one.setAttribute("aria-pressed", String(index === chosen));
    group.append(one);
  });
  return group;
}

// A box with values beside the pointer, inside of `host`.
function tooltip(host) {
  const box = element("div", "tooltip");
  box.hidden = true;
  host.append(box);
  return {
    show(left, top, title, rows) {
      box.replaceChildren(element("strong", "", title));
      for (const [name, value, mark] of rows) {
        const line = element("div", "tip-row");
        const swatch = element("i", "swatch");
        if (mark) swatch.style.background = mark;
        line.append(swatch, element("span", "", name), element("b", "", value));
        box.append(line);
      }
      box.hidden = false;
      const room = host.clientWidth - box.offsetWidth;
      const beside = left + 14 > room ? left - box.offsetWidth - 14 : left + 14;
      box.style.left = `${Math.max(0, Math.min(room, beside))}px`;
      box.style.top = `${Math.max(0, Math.min(host.clientHeight - box.offsetHeight, top + 10))}px`;
    },
    hide() {
      box.hidden = true;
    },
    text: () => box.innerText.replace(/\n+/g, ", "),
  };
}

// What a screen reader is told when the keyboard moves through a figure.
function announcer(host) {
  const region = element("div", "visually-hidden");
  region.setAttribute("aria-live", "polite");
  host.append(region);
  return (text) => {
    region.textContent = text;
  };
}
