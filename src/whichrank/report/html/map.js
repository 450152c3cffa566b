"use strict";
// The map of ranks over time. Times are tenths of microseconds from the map's beginning.
for (const root of document.querySelectorAll("[data-map]")) drawMap(root);

function drawMap(root) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const canvas = root.querySelector("canvas"), tip = root.querySelector(".tip"), legend = root.querySelector(".legend");
  const context = canvas.getContext("2d");
  const add = (list) => { let sum = 0; return Float64Array.from(list, (step) => (sum += step)); };
  const rows = data.rows.map((row, place) => ({ ...row, place, at: add(row.at), marks: add(row.marks) }));
  const whole = { from: Infinity, to: -Infinity };
  for (const { at } of rows) { whole.from = Math.min(whole.from, at[0]); whole.to = Math.max(whole.to, at[at.length - 1]); }
  if (!(whole.to > whole.from)) whole.to = whole.from + 10;
  const view = { ...whole }, shown = data.states.map(() => true);
  const TOP = 24, MOST = 560;
  let LEFT = 92, height = 0, rowHeight = 0, width = 0, first = 0, visible = rows.length, colours = [], pending = false;

  const used = new Set();
  for (const row of rows) for (let i = 0; i + 1 < row.at.length; i++) used.add(row.state[i]);
  data.states.forEach((state, index) => {
    if (!used.has(index)) return;
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    const swatch = document.createElement("i");
    swatch.style.background = `var(${state.colour})`;
    button.append(swatch, state.name);
    button.onclick = () => { shown[index] = !shown[index]; button.setAttribute("aria-pressed", String(shown[index])); redraw(); };
    legend.append(button);
  });

  const named = (row) => (row.flag ? `${row.label} · ${row.flag}` : row.label);

  function layout() {
    width = canvas.parentElement.clientWidth;
    context.font = "13px system-ui, sans-serif";
    const widest = rows.reduce((most, row) => Math.max(most, context.measureText(named(row)).width), 0);
    LEFT = Math.round(Math.min(Math.max(92, widest + 22), Math.max(92, width * 0.3)));
    rowHeight = Math.max(4, Math.min(26, Math.floor((MOST - TOP) / rows.length)));
    visible = Math.min(rows.length, Math.floor((MOST - TOP) / rowHeight));
    first = Math.min(first, rows.length - visible);
    height = TOP + visible * rowHeight;
    canvas.style.touchAction = visible < rows.length ? "none" : "pan-y";  // a finger scrolls the page past a map that is all in view
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    colours = data.states.map((state) => value(state.colour));
    colours.ink = value("--ink"); colours.soft = value("--soft"); colours.line = value("--line");
    colours.card = value("--card"); colours.warn = value("--warn");
  }

  const x = (time) => LEFT + ((time - view.from) / (view.to - view.from)) * (width - LEFT);
  const timeAt = (px) => view.from + ((px - LEFT) / (width - LEFT)) * (view.to - view.from);

  function index(at, time) {
    let low = 0, high = at.length;
    while (low < high) { const middle = (low + high) >> 1; if (at[middle] <= time) low = middle + 1; else high = middle; }
    return low - 1;
  }

  function draw() {
    pending = false;
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, height);
    const gap = rowHeight > 8 ? 2 : rowHeight > 5 ? 1 : 0;
    for (let r = 0; r < visible; r++) drawRow(rows[first + r], TOP + r * rowHeight, rowHeight - gap);
    drawAxis();
    drawLabels();
    root.dataset.view = `${view.from} ${view.to}`;
    root.dataset.ready = "true";
  }

  function drawRow(row, top, tall) {
    const { at, state } = row, last = at.length - 1;
    let until = LEFT;
    for (let i = Math.max(0, index(at, view.from)); i < last && at[i] < view.to; i++) {
      const left = Math.max(LEFT, x(at[i])), right = Math.min(width, x(at[i + 1]));
      if (right <= until || !shown[state[i]]) continue;  // narrower than what is drawn already
      context.fillStyle = colours[state[i]];
      context.fillRect(Math.max(left, until - 0.5), top, Math.max(right - Math.max(left, until - 0.5), 0.6), tall);
      until = Math.max(right, left + 0.6);
    }
    if (rowHeight > 8) {
      context.fillStyle = colours.ink;
      for (const mark of row.marks) if (mark >= view.from && mark <= view.to) context.fillRect(x(mark), top, 1, tall);
    }
  }

  function drawAxis() {
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, TOP - 4);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const span = view.to - view.from, wanted = span / Math.max(2, (width - LEFT) / 110);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) || 10 * power;
    for (let time = Math.ceil((view.from - whole.from) / step) * step + whole.from; time <= view.to; time += step) {
      context.fillStyle = colours.line;
      context.fillRect(x(time), TOP - 6, 1, 4);
      context.fillStyle = colours.soft;
      const text = duration(time - whole.from, step);
      context.fillText(text, Math.min(x(time) + 3, width - context.measureText(text).width - 2), 9);
    }
  }

  function drawLabels() {
    context.fillStyle = colours.card;
    context.fillRect(0, TOP, LEFT - 1, height);
    context.font = `${Math.min(13, Math.max(10, rowHeight - 4))}px system-ui, sans-serif`;
    const every = Math.ceil(13 / rowHeight);
    for (let r = 0; r < visible; r++) {
      const row = rows[first + r];
      const near = rows.slice(Math.max(0, first + r - every + 1), first + r + every).some((other) => other.flag);
      if (!row.flag && (r % every || near)) continue;
      context.fillStyle = row.flag ? colours.warn : colours.soft;
      context.fillText(named(row), 8, TOP + r * rowHeight + rowHeight / 2, LEFT - 14);
    }
    if (visible < rows.length) {
      const tall = height - TOP, part = visible / rows.length;
      context.fillStyle = colours.line;
      context.fillRect(0, TOP, 4, tall);
      context.fillStyle = colours.soft;
      context.fillRect(0, TOP + (first / rows.length) * tall, 4, Math.max(12, part * tall));
    }
  }

  function duration(tenths, step) {
    const us = tenths / 10, unit = Math.max(step / 10, 0.1);
    if (unit >= 1e5 || us >= 1e7) return `${(us / 1e6).toFixed(unit >= 1e6 ? 0 : unit >= 1e5 ? 1 : 3)} s`;
    if (unit >= 10 || us >= 1e4) return `${(us / 1e3).toFixed(unit >= 1e3 ? 0 : unit >= 100 ? 1 : 2)} ms`;
    return `${us.toFixed(unit >= 1 ? 0 : 1)} µs`;
  }

  function redraw() { if (!pending) { pending = true; requestAnimationFrame(draw); } }

  function zoom(factor, centre) {
    const span = Math.min(whole.to - whole.from, Math.max(20, (view.to - view.from) * factor));
    const part = (centre - view.from) / (view.to - view.from);
    move(centre - part * span, span);
  }

  function move(from, span = view.to - view.from) {
    view.from = Math.min(Math.max(from, whole.from), whole.to - span);
    view.to = view.from + span;
    redraw();
  }

  function scroll(rowsDown) { first = Math.max(0, Math.min(rows.length - visible, first + rowsDown)); redraw(); }

  canvas.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (event.shiftKey && visible < rows.length) scroll(Math.sign(event.deltaY) * Math.max(1, visible >> 3));
    else if (sideways) move(view.from + (event.deltaX / width) * (view.to - view.from));
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.offsetX));
    event.preventDefault();
  }, { passive: false });

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.offsetX, y: event.offsetY, from: view.from, first }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", (event) => {
    const still = drag && Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) < 5;
    drag = null;
    if (still) hover(event);  // a tap asks what a mouse asks by hovering
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      first = Math.max(0, Math.min(rows.length - visible, drag.first - Math.round((event.offsetY - drag.y) / rowHeight)));
      move(drag.from - ((event.offsetX - drag.x) / (width - LEFT)) * (view.to - view.from));
      tip.hidden = true;
    } else hover(event);
  });
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") tip.hidden = true; });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  canvas.addEventListener("dblclick", () => move(whole.from, whole.to - whole.from));
  canvas.addEventListener("keydown", (event) => {
    const span = view.to - view.from, middle = (view.from + view.to) / 2;
    const action = {
      "+": () => zoom(0.8, middle), "=": () => zoom(0.8, middle), "-": () => zoom(1.25, middle),
      "0": () => move(whole.from, whole.to - whole.from), ArrowLeft: () => move(view.from - span / 8),
      ArrowRight: () => move(view.from + span / 8), ArrowUp: () => scroll(-1), ArrowDown: () => scroll(1),
    }[event.key];
    if (action) { action(); event.preventDefault(); }
  });
  for (const button of root.querySelectorAll("[data-zoom]")) button.onclick = () => {
    const middle = (view.from + view.to) / 2;
    if (button.dataset.zoom === "all") move(whole.from, whole.to - whole.from);
    else zoom(button.dataset.zoom === "in" ? 0.5 : 2, middle);
  };

  const order = root.querySelector("[data-order]");
  if (order) order.onchange = () => {
    const axis = order.value;
    const key = (row) => (axis in row.keys ? row.keys[axis] : Infinity);
    const compare = (a, b) => (a === b ? 0 : typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
    rows.sort((a, b) => (axis && compare(key(a), key(b))) || a.place - b.place);
    first = 0;
    redraw();
  };

  function hover(event) {
    const row = rows[first + Math.floor((event.offsetY - TOP) / rowHeight)], time = timeAt(event.offsetX);
    const place = row && event.offsetX > LEFT ? index(row.at, time) : -1;
    if (place < 0 || place >= row.at.length - 1) { tip.hidden = true; return; }
    const length = row.at[place + 1] - row.at[place];
    const told = row.words && row.words.length ? data.words[row.words[place]] : "";
    tip.textContent = `${row.label}: ${told || data.states[row.state[place]].name} for ${duration(length, length / 100)}, at ${duration(time - whole.from, (view.to - view.from) / 1000)}`;
    tip.hidden = false;
    tip.style.left = "0";  // at its full width first, then where it fits
    const { width: wide, height: tall } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8))}px`;
    tip.style.top = `${event.clientY + 16 + tall < innerHeight ? event.clientY + 16 : Math.max(4, event.clientY - tall - 12)}px`;
  }

  new ResizeObserver(() => { layout(); draw(); }).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { layout(); draw(); });
  matchMedia("print").addEventListener("change", () => { layout(); draw(); });
  layout();
  draw();
}
