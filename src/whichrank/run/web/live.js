"use strict";
// Everything that comes from the job is set as text, never as HTML.
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = text;
    if (name) element.className = name;
    return element;
  };
  const number = (value, digits = 1) =>
    value === null || value === undefined ? "–" : value >= 100 ? String(Math.round(value)) : value >= 10 ? value.toFixed(digits) : value.toFixed(2);
  const seconds = (value) => (!value ? "" : value < 100 ? `${value.toFixed(1)} s` : value < 6000 ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`);
  const count = (ranks) => ranks.toLocaleString("en");
  const size = (mib) => (mib === null || mib === undefined ? "" : mib < 10240 ? `${mib} MiB` : `${(mib / 1024).toFixed(1)} GiB`);
  const tone = { running: "good", confirmed: "bad", stuck: "bad", suspect: "warn", ending: "warn", restarting: "warn" };
  const words = { confirmed: "hang", stuck: "hang", suspect: "suspicious" };
  const past = [];
  let last = null;

  function head(s) {
    const failed = s.state === "ended" && s.exit_code;
    const state = $("state");
    state.textContent = failed ? `ended, code ${s.exit_code}` : words[s.state] || s.state;
    state.className = `chip ${failed ? "bad" : s.state === "running" && s.verdict && s.verdict.category !== "healthy" ? "bad" : tone[s.state] || ""}`;
    $("job").textContent = s.job;
    $("where").textContent = s.attempt > 1 ? `attempt ${s.attempt}` : "";
    $("out").textContent = `results in ${s.out}`;
    document.title = `${words[s.state] || s.state} · ${s.job} · whichrank`;
    $("c-ranks").textContent = s.seen < s.world ? `${count(s.seen)} of ${count(s.world)}` : count(s.seen);
    $("c-steps").textContent = s.steps === null ? (s.step ? s.step : "–") : number(s.steps);
    $("c-steps-label").textContent = s.steps === null && s.step ? "steps so far" : "steps per second";
    $("c-rate").textContent = number(s.rate);
    const late = s.groups.filter((g) => g.letter === "l");
    $("c-late").textContent = late.length ? seconds(Math.max(...late.map((g) => g.late))) : s.slow.length ? `rank ${s.slow[0].rank}` : "–";
    $("c-late-label").textContent = late.length ? `others wait for rank ${late[0].ranks}` : s.slow.length ? `is slow at ${s.slow[0].place || "an unknown place"}` : "nobody is late";
    $("c-late-card").className = `card ${late.length ? "bad" : s.slow.length ? "warn" : ""}`;
  }

  // The speed at this moment, from the counters; the figures above are means over half a minute.
  function spark(s) {
    const count = s.step || s.issued, before = last;
    last = { t: s.t, count, steps: Boolean(s.step) };
    if (!before || s.t <= before.t || before.steps !== last.steps || count < before.count) return;
    past.push((count - before.count) / (s.t - before.t));
    if (past.length > 300) past.shift();
    const most = Math.max(...past, 1e-9);
    const points = past.map((v, i) => `${(300 * i) / Math.max(1, past.length - 1)},${42 - (40 * v) / most}`);
    $("spark").firstElementChild.setAttribute("points", points.join(" "));
    $("spark-label").textContent = `${last.steps ? "steps" : "collectives"} per second, last ${past.length < 60 ? `${past.length} s` : `${Math.round(past.length / 60)} min`}`;
  }

  function verdict(v) {
    $("verdict").hidden = !v;
    if (!v) return;
    $("verdict").className = `verdict${v.category === "healthy" ? " good" : ""}`;
    $("v-kicker").textContent = `${v.category === v.cause ? v.cause : `${v.category} · ${v.cause}`} · ${Math.round(100 * v.confidence)} % sure`;
    $("v-summary").textContent = v.summary;
    const who = [];
    if (v.ranks.length) who.push(`rank ${v.ranks.join(", ")}`);
    else if (v.candidates.length) who.push(`one of the ranks ${v.candidates.join(", ")}`);
    if (v.hosts.length) who.push(`on ${v.hosts.join(", ")}`);
    if (v.code.length) who.push(`at ${v.code.join(", ")}`);
    $("v-who").textContent = who.join(" ");
    $("v-fix").replaceChildren(...v.fix.map((step) => make("li", step)));
    $("v-next").replaceChildren();
    for (const command of v.next) $("v-next").append("Next: ", make("code", command), " ");
  }

  function groups(s) {
    $("groups").replaceChildren(
      ...s.groups.map((g) => {
        const item = make("li", null, g.letter === "l" ? "late" : "");
        item.append(make("i", null, `t-${g.letter}`), make("b", `${count(g.count)} rank${g.count === 1 ? "" : "s"}`));
        const what = make("span", `${g.doing}${g.place ? ` at ${g.place}` : ""}`, "what");
        what.append(make("span", `  rank${g.count === 1 ? "" : "s"} ${g.ranks}`, "soft"));
        item.append(what, make("span", g.late ? `late ${seconds(g.late)}` : g.quiet > 5 ? `quiet ${seconds(g.quiet)}` : "", "since"));
        return item;
      }),
    );
    const tiles = $("tiles");
    tiles.className = `tiles${s.tiles.length > 512 ? " many" : ""}`;
    while (tiles.childElementCount > s.tiles.length) tiles.lastChild.remove();
    while (tiles.childElementCount < s.tiles.length) tiles.append(make("i"));
    for (let i = 0; i < s.tiles.length; i++) {
      const tile = tiles.children[i], name = `t-${s.tiles[i]}`;
      if (tile.className !== name) tile.className = name;
      if (tile.dataset.rank !== String(s.first + i)) { tile.dataset.rank = s.first + i; tile.title = `rank ${s.first + i}`; }
    }
  }

  function ranks(s) {
    const blamed = new Set(s.verdict ? s.verdict.ranks : []);
    $("rows-hint").textContent = s.rows.length < s.seen ? `${s.rows.length} of ${count(s.seen)}: those that keep others waiting, then the first.` : "";
    $("rows-hint").hidden = s.rows.length >= s.seen;
    $("ranks").className = `${s.rows.some((r) => r[9] !== null && r[9] !== undefined) ? "" : "no-gpu"} ${s.rows.some((r) => r[1]) ? "" : "no-host"}`;
    const body = $("ranks").tBodies[0];
    body.replaceChildren(
      ...s.rows.map(([rank, host, letter, doing, step, rate, late, quiet, memory, gpu, gpuMemory, heat, slowed, place, pid]) => {
        const row = make("tr", null, `${letter} ${blamed.has(rank) ? "culprit" : ""}`);
        row.title = `process ${pid}`;
        const cells = [[rank, "n"], [host, "h"], [doing, "doing"], [place, "at"], [step || "", "n"], [rate === null ? "" : number(rate), "n"],
          [seconds(late), "n"], [quiet > 1 ? seconds(quiet) : "", "n"], [size(memory), "n"], [gpu === null || gpu === undefined ? "" : `${gpu} %${slowed ? " throttled" : ""}`, "g n"],
          [size(gpuMemory), "g n"], [heat === null || heat === undefined ? "" : heat, "g n"]];
        row.append(...cells.map(([text, name]) => make("td", text, name)));
        return row;
      }),
    );
  }

  function alarms(s) {
    const items = s.alarms.slice().reverse().map((a) => {
      const item = make("li", null, `${a.level} ${a.withdrawn ? "withdrawn" : ""}`);
      item.append(make("time", String(a.time || "").replace("T", " ").replace(/\.\d+Z$/, "Z")), make("b", words[a.level] || a.level), a.why);
      return item;
    });
    $("alarms").replaceChildren(...(items.length ? items : [make("li", "No alarm so far.", "soft")]));
  }

  const source = new EventSource(`events${location.search}`);
  source.onmessage = (message) => {
    const s = JSON.parse(message.data);
    $("lost").hidden = true;
    if (s.world === undefined) { $("state").textContent = s.state; return; }
    head(s);
    if (s.state !== "ended") { spark(s); groups(s); ranks(s); }
    verdict(s.verdict);
    alarms(s);
    document.body.dataset.events = Number(document.body.dataset.events || 0) + 1;
    if (s.state === "ended") source.close();
  };
  source.onerror = () => { if (source.readyState !== EventSource.CLOSED || !document.title.startsWith("ended")) $("lost").hidden = false; };
})();
