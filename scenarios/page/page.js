"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [SEQ, TIME, LANE, LEDGER, GROUP, SAYS, OTHER, KIND, FIELDS] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const ROW = 22, NARROW = window.innerWidth < 960, LANES_LEFT = 92, LANE_WIDTH = NARROW ? 30 : 58;
  const COLOURS = ["#0b63ce", "#1a7f37", "#b3261e", "#6f42c1", "#9a6700", "#0f766e", "#be185d", "#64748b"];
  const $ = (id) => document.getElementById(id);
  const svgOf = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const elementOf = (name, text, cls) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (cls) made.className = cls;
    return made;
  };
  const ms = (us) => (us / 1000).toFixed(2);

  const proof = new Set(data.violations.flatMap((each) => each.seqs));
  const bySeq = new Map(data.events.map((event) => [event[SEQ], event]));
  const messageOf = new Map();
  for (const message of data.messages) for (const seq of message) if (seq !== null && !messageOf.has(seq)) messageOf.set(seq, message);
  const groups = new Set(data.groups);
  let shown = [], rowOf = new Map(), picked = null;

  // Head ---------------------------------------------------------------------------------------------------------
  const count = data.violations.length;
  $("verdict").textContent = count ? `${count} violation${count > 1 ? "s" : ""}` : data.verdict === "ok" ? "no violation" : data.verdict;
  $("verdict").className = count ? "violated" : data.verdict;
  for (const [name, value] of data.facts) {
    const fact = elementOf("div");
    fact.append(elementOf("dt", name), elementOf("dd", value));
    $("facts").append(fact);
  }
  for (const violation of data.violations) {
    const button = elementOf("button", `${violation.name}, ledger ${violation.ledger}: ${violation.witness}`);
    button.type = "button";
    button.addEventListener("click", () => {
      if (violation.ledger >= 0) choose(String(violation.ledger));
      if (violation.seqs.length) { reveal(violation.seqs[0]); $("scroll").focus(); }
    });
    const item = elementOf("li");
    item.append(button);
    $("violations").append(item);
  }
  if (!count) $("violations").replaceWith(elementOf("p", "None."));

  // Events -------------------------------------------------------------------------------------------------------
  const laneX = (lane) => LANES_LEFT + LANE_WIDTH * (lane + 0.5);
  const textX = LANES_LEFT + LANE_WIDTH * data.actors.length + 10;
  $("lanes").style.minWidth = $("scroll").style.minWidth = `${textX + (NARROW ? 260 : 430)}px`;
  data.actors.forEach((actor, lane) => {
    const label = elementOf("span", NARROW ? actor.short : actor.name);
    label.style.left = `${laneX(lane)}px`;
    label.title = actor.name;
    $("lanes").append(label);
  });

  const entryOf = (event) => {
    const field = event[FIELDS].find(([name]) => name === "entry");
    return field ? field[1] : null;
  };
  const select = () => {
    const ledger = $("ledger").value, entry = $("entry").value.trim();
    shown = data.events.filter((event) => proof.has(event[SEQ]) || (groups.has(event[GROUP])
      && (ledger === "" || event[LEDGER] === -1 || String(event[LEDGER]) === ledger)
      && (entry === "" || entryOf(event) === null || entryOf(event) === entry)));
    rowOf = new Map(shown.map((event, row) => [event[SEQ], row]));
    $("space").style.height = `${shown.length * ROW}px`;
    $("count").textContent = `${shown.length.toLocaleString("en")} of ${data.events.length.toLocaleString("en")} events`;
    draw();
  };
  const draw = () => {
    const box = $("scroll"), space = $("space");
    const top = Math.min(box.scrollTop, Math.max(0, shown.length * ROW - box.clientHeight)); // there may be fewer rows than before
    const from = Math.max(0, Math.floor(top / ROW) - 5);
    const to = Math.min(shown.length, Math.ceil((top + box.clientHeight) / ROW) + 5);
    const fragment = document.createDocumentFragment();
    for (let row = from; row < to; row += 1) {
      const event = shown[row];
      const line = elementOf("div", undefined, `row ${event[GROUP]}`);
      line.id = `event-${event[SEQ]}`;
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", String(event[SEQ] === picked));
      line.setAttribute("aria-posinset", String(row + 1));
      line.setAttribute("aria-setsize", String(shown.length));
      line.style.top = `${row * ROW}px`;
      if (proof.has(event[SEQ])) line.classList.add("proof");
      if (event[SEQ] === picked) line.classList.add("picked");
      const actor = event[LANE] >= 0 ? data.actors[event[LANE]].name : "";
      const says = elementOf("span", `${actor}${actor ? " " : ""}${event[SAYS]}`, "says");
      line.title = says.textContent;
      says.style.left = `${textX}px`;
      line.append(elementOf("span", ms(event[TIME]), "at"), says);
      line.addEventListener("click", () => pick(event[SEQ]));
      fragment.append(line);
    }
    fragment.append(drawn(from, to));
    space.replaceChildren(fragment);
    if (picked !== null && rowOf.has(picked)) box.setAttribute("aria-activedescendant", `event-${picked}`);
    else box.removeAttribute("aria-activedescendant");
  };
  const drawn = (from, to) => {
    const height = (to - from) * ROW;
    const picture = svgOf("svg", { width: textX, height, viewBox: `0 ${from * ROW} ${textX} ${height}` });
    picture.style.top = `${from * ROW}px`;
    data.actors.forEach((_, lane) => picture.append(svgOf("line", { class: "lane", x1: laneX(lane), x2: laneX(lane), y1: from * ROW, y2: to * ROW })));
    const y = (seq) => (rowOf.get(seq) + 0.5) * ROW;
    const arrow = (first, last, x1, x2, cls) => {
      if (first === null || last === null || !rowOf.has(first) || !rowOf.has(last)) return;
      if (rowOf.get(last) < from || rowOf.get(first) >= to) return;
      const side = x2 > x1 ? 1 : -1;
      picture.append(svgOf("path", { class: cls, d: `M${x1} ${y(first)} L${x2} ${y(last)} m${-7 * side} -4 l${7 * side} 4 l${-7 * side} 4` }));
    };
    for (const message of data.messages) {
      const [request, arrival, answer] = message;
      const event = bySeq.get(request);
      if (event[LANE] < 0 || event[OTHER] < 0) continue;
      const near = laneX(event[LANE]), far = laneX(event[OTHER]);
      const mark = message.includes(picked) ? " picked-message" : "";
      if (arrival !== null && rowOf.has(arrival)) {
        arrow(request, arrival, near, far, `out${mark}`);
        arrow(arrival, answer, far, near, `back${mark}`);
      } else if (mark) arrow(request, answer, near + (far > near ? 10 : -10), near, `back${mark}`);
    }
    for (let row = from; row < to; row += 1) {
      if (shown[row][LANE] >= 0) picture.append(svgOf("circle", { class: "dot", cx: laneX(shown[row][LANE]), cy: (row + 0.5) * ROW, r: 3.5 }));
    }
    return picture;
  };
  const pick = (seq) => {
    picked = seq;
    const event = bySeq.get(seq), message = messageOf.get(seq);
    const detail = elementOf("table");
    const add = (name, value) => {
      const line = elementOf("tr");
      const head = elementOf("th", name);
      head.scope = "row";
      line.append(head, elementOf("td", value));
      detail.append(line);
    };
    add("event", `${seq}, ${event[KIND]}`);
    add("at", `${ms(event[TIME])} ms`);
    if (event[LANE] >= 0) add("of", data.actors[event[LANE]].name);
    if (event[LEDGER] >= 0) add("ledger", String(event[LEDGER]));
    for (const [name, value] of event[FIELDS]) add(name, value);
    if (message) {
      const [request, arrival, answer] = message;
      add("message", `sent ${request}, ${arrival === null ? "no arrival recorded" : `arrived ${arrival}`}, ${answer === null ? "not answered" : `answered ${answer}`}`);
    }
    if (proof.has(seq)) add("shows", data.violations.filter((each) => each.seqs.includes(seq)).map((each) => each.name).join(", "));
    $("detail").replaceChildren(elementOf("strong", event[SAYS]), detail);
    draw();
    mark();
  };
  const reveal = (seq) => {
    if (!rowOf.has(seq)) { everything(); }
    if (!rowOf.has(seq)) return;
    const box = $("scroll"), top = rowOf.get(seq) * ROW;
    if (top < box.scrollTop + ROW || top > box.scrollTop + box.clientHeight - 2 * ROW) box.scrollTop = top - box.clientHeight / 2;
    pick(seq);
  };
  const everything = () => {
    $("entry").value = "";
    for (const box of $("groups").querySelectorAll("input")) { box.checked = true; groups.add(box.value); }
    $("ledger").value = "";
    select();
  };
  const step = (by) => {
    if (!shown.length) return;
    const at = picked !== null && rowOf.has(picked) ? rowOf.get(picked) : -1;
    reveal(shown[Math.max(0, Math.min(shown.length - 1, at === -1 ? 0 : at + by))][SEQ]);
  };
  const seek = (is, by) => {
    const at = picked !== null && rowOf.has(picked) ? rowOf.get(picked) : by > 0 ? -1 : shown.length;
    for (let row = at + by; row >= 0 && row < shown.length; row += by) if (is(shown[row])) return reveal(shown[row][SEQ]);
  };
  const follow = () => {
    const message = messageOf.get(picked);
    if (!message) return;
    const ends = message.filter((seq) => seq !== null);
    reveal(ends[(ends.indexOf(picked) + 1) % ends.length]);
  };
  const isProof = (event) => proof.has(event[SEQ]);
  const isFault = (event) => event[GROUP] === "faults";
  const keys = {
    ArrowDown: () => step(1), ArrowUp: () => step(-1), j: () => step(1), k: () => step(-1),
    PageDown: () => step(Math.floor($("scroll").clientHeight / ROW)), PageUp: () => step(-Math.floor($("scroll").clientHeight / ROW)),
    Home: () => step(-shown.length), End: () => step(shown.length), Enter: follow,
    n: () => seek(isProof, 1), p: () => seek(isProof, -1), f: () => seek(isFault, 1), b: () => seek(isFault, -1),
    e: () => {
      const entry = picked === null ? null : entryOf(bySeq.get(picked));
      $("entry").value = $("entry").value === "" && entry !== null ? entry : "";
      select();
      if (picked !== null) reveal(picked);
    },
  };
  $("scroll").addEventListener("keydown", (press) => {
    if (press.ctrlKey || press.metaKey || press.altKey || !(press.key in keys)) return;
    press.preventDefault();
    keys[press.key]();
  });
  $("scroll").addEventListener("scroll", draw);
  window.addEventListener("resize", () => { chart(); draw(); });
  $("entry").addEventListener("input", select);
  for (const group of data.groups) {
    const label = elementOf("label"), box = elementOf("input");
    box.type = "checkbox";
    box.value = group;
    box.checked = true;
    box.addEventListener("change", () => { if (box.checked) groups.add(group); else groups.delete(group); select(); });
    label.append(box, ` ${group}`);
    $("groups").append(label);
  }

  // Entries over time --------------------------------------------------------------------------------------------
  const H = 300, LEFT = 46, RIGHT = 12, TOP = 10, BAR = 16, NARROWEST = 260;
  let here = null, W = 1000; // as wide as there is room, so that words keep their size
  const x = (us) => LEFT + (W - LEFT - RIGHT) * (data.end_us ? us / data.end_us : 0);
  const chart = () => {
    const ledger = data.ledgers.find((each) => String(each.ledger) === $("ledger").value) ?? data.ledgers[0];
    $("legend").replaceChildren();
    if (!ledger) { $("chart").replaceChildren(elementOf("p", "No ledger.")); return; }
    W = Math.max(NARROWEST, $("chart").clientWidth);
    const names = Object.keys(ledger.curves);
    const highest = Math.max(1, ...names.map((name) => ledger.curves[name].at(-1)[1]), ...ledger.closed.map(([, entry]) => entry));
    const bars = ledger.versions.length ? BAR : 0, bottom = H - 24 - bars;
    const y = (entry) => bottom - (bottom - TOP) * (entry / highest);
    const picture = svgOf("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Entries of ledger ${ledger.ledger} over time` });
    for (let part = 0; part <= 4; part += 1) {
      const entry = Math.round(highest * part / 4), us = data.end_us * part / 4;
      picture.append(svgOf("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(entry), y2: y(entry) }));
      picture.append(svgOf("text", { class: "axis", x: LEFT - 6, y: y(entry) + 4, "text-anchor": "end" }, String(entry)));
      picture.append(svgOf("text", { class: "axis", x: x(us), y: H - 4, "text-anchor": part === 4 ? "end" : part ? "middle" : "start" }, `${(us / 1000).toFixed(0)} ms`));
    }
    for (const fault of data.faults) {
      const until = fault.until_us ?? data.end_us;
      const band = svgOf("rect", { class: "fault", x: x(fault.from_us), width: Math.max(1.5, x(until) - x(fault.from_us)), y: TOP, height: bottom - TOP });
      band.append(svgOf("title", {}, `${fault.what} ${fault.where}, ${ms(fault.from_us)} to ${fault.until_us === null ? "the end" : `${ms(until)} ms`}`));
      picture.append(band);
    }
    ledger.versions.forEach((version, index) => {
      const until = ledger.versions[index + 1]?.us ?? data.end_us;
      const bar = svgOf("rect", { class: "fragment", x: x(version.us), width: Math.max(1, x(until) - x(version.us)), y: bottom + 3, height: BAR - 4, fill: COLOURS[index % COLOURS.length], opacity: 0.55 });
      bar.append(svgOf("title", {}, `version ${version.version}, ${version.state}, by ${version.by}: ${version.fragments.map(([first, bookies]) => `from ${first}: ${bookies.join(", ")}`).join("; ")}`));
      bar.addEventListener("click", () => reveal(version.seq));
      picture.append(bar);
    });
    names.forEach((name, index) => {
      const colour = COLOURS[index % COLOURS.length], points = ledger.curves[name];
      let path = `M${x(points[0][0])} ${y(points[0][1])}`;
      for (const [us, entry] of points.slice(1)) path += `H${x(us)}V${y(entry)}`;
      path += `H${x(data.end_us)}`;
      const curve = svgOf("path", { d: path, fill: "none", stroke: colour, "stroke-width": name === "acknowledged" ? 2.6 : 1.4, "stroke-dasharray": name === "appended" ? "3 3" : "none" });
      curve.append(svgOf("title", {}, name));
      picture.append(curve);
      const key = elementOf("span"), swatch = elementOf("i");
      swatch.style.background = colour;
      key.append(swatch, name);
      $("legend").append(key);
    });
    for (const [us, entry] of ledger.closed) {
      const end = svgOf("circle", { cx: x(us), cy: y(Math.max(0, entry)), r: 5, fill: "none", stroke: "currentColor", "stroke-width": 2 });
      end.append(svgOf("title", {}, `closed at entry ${entry}`));
      picture.append(end);
    }
    here = svgOf("line", { class: "here", x1: -9, x2: -9, y1: TOP, y2: H - 20 });
    picture.append(here);
    picture.addEventListener("click", (press) => {
      if (press.target.classList.contains("fragment")) return;
      const box = picture.getBoundingClientRect();
      const us = ((press.clientX - box.left) / box.width * W - LEFT) / (W - LEFT - RIGHT) * data.end_us;
      const near = shown.find((event) => event[TIME] >= us) ?? shown.at(-1);
      if (near) reveal(near[SEQ]);
    });
    $("chart").replaceChildren(picture);
    mark();
  };
  const mark = () => {
    if (!here || picked === null) return;
    const at = x(bySeq.get(picked)[TIME]);
    here.setAttribute("x1", at);
    here.setAttribute("x2", at);
  };
  const choose = (ledger) => { $("ledger").value = ledger; chart(); select(); };
  const all = elementOf("option", "all");
  all.value = "";
  $("ledger").append(all);
  for (const { ledger } of data.ledgers) {
    const option = elementOf("option", String(ledger));
    option.value = String(ledger);
    $("ledger").append(option);
  }
  $("ledger").addEventListener("change", () => { chart(); select(); });
  const first = data.violations.find((each) => each.ledger >= 0)?.ledger ?? data.ledgers[0]?.ledger;
  $("ledger").value = first === undefined ? "" : String(first);
  chart();
  select();
  const start = data.violations.flatMap((each) => each.seqs)[0];
  if (start !== undefined) reveal(start);
})();
