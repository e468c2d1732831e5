"use strict";
const token = document.querySelector('meta[name="token"]').content;
const byId = (id) => document.getElementById(id);
const ACTIONS = { crash: "Crash", restart: "Restart", pause: "Pause", resume: "Resume", partition: "Partition", heal: "Heal" };
const FACTS = ["adds", "journal", "write cache", "entry logs", "garbage collection", "ledgers", "disk"];
const cards = new Map();
let before = null;
let shownDone = 0;

/** An element with a class, words and attributes; words are never taken for markup. */
function make(tag, words = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = words;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Set words only where they differ, so that what a reader has selected or focused stays. */
function say(element, words) { if (element.textContent !== words) element.textContent = words; }

function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < 4) { count /= 1024; unit += 1; }
  return `${count >= 100 || unit === 0 ? Math.round(count) : count.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

async function act(action, bookie, button) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch("/act", {
      method: "POST",
      headers: { "content-type": "application/json", "x-token": token },
      body: JSON.stringify(bookie ? { action, bookie } : { action }),
    });
    if (!answer.ok && answer.status !== 409) note(`${action} ${bookie}: ${(await answer.text()).trim()}`, true);
  } catch (error) {
    note(`${action} ${bookie}: bk-sim does not answer`, true);
  }
  button.removeAttribute("aria-busy");
}

function note(words, isError) {
  const list = byId("done");
  list.prepend(make("li", words, isError ? { class: "error" } : {}));
  while (list.children.length > 50) list.lastChild.remove();
}

function card(bookie) {
  const article = make("article", "", { "aria-label": `bookie ${bookie.id}` });
  const title = make("h3", `${bookie.id} `);
  const state = make("span", "", { class: "state" });
  title.append(state);
  const facts = make("dl");
  const cells = {};
  for (const name of FACTS) {
    cells[name] = make("dd");
    facts.append(make("dt", name), cells[name]);
  }
  const meters = {};
  for (const [name, label] of [["journal", "journal queue"], ["write cache", "write cache"], ["disk", "disk used"]]) {
    meters[name] = make("meter", "", { min: 0, max: 1, "aria-label": `${label} of ${bookie.id}` });
    cells[name].append(meters[name], make("span"));
  }
  const buttons = make("div", "", { class: "buttons", role: "group", "aria-label": `what to do to ${bookie.id}` });
  const byAction = {};
  for (const [action, words] of Object.entries(ACTIONS)) {
    const button = byAction[action] = make("button", words, { type: "button", "data-action": action, "aria-label": `${words} ${bookie.id}` });
    button.addEventListener("click", () => act(action, bookie.id, button));
    buttons.append(button);
  }
  article.append(title, facts, buttons);
  byId("bookies").append(article);
  return { article, state, cells, meters, byAction };
}

function showBookie(bookie, old, seconds) {
  if (!cards.has(bookie.id)) cards.set(bookie.id, card(bookie));
  const { article, state, cells, meters, byAction } = cards.get(bookie.id);
  article.className = bookie.state;
  say(state, bookie.state === "paused" && bookie.partitioned ? "paused and partitioned" : bookie.state);
  const isUp = bookie.state !== "crashed", isPaused = bookie.state === "paused";
  const can = { crash: isUp, restart: true, pause: isUp && !isPaused, resume: isPaused, partition: !bookie.partitioned, heal: bookie.partitioned };
  for (const [action, button] of Object.entries(byAction)) button.setAttribute("aria-disabled", String(!can[action]));
  const now = bookie.values;
  for (const name of ["adds", "entry logs", "garbage collection", "ledgers"]) if (!now) say(cells[name], "silent");
  for (const [name, meter] of Object.entries(meters)) { meter.hidden = !now; if (!now) say(meter.nextSibling, "silent"); }
  if (!now) return;
  const rate = (name) => old && seconds > 0 ? Math.max(0, (now[name] - old[name]) / seconds) : 0;
  say(cells.adds, `${Math.round(rate("adds"))}/s, ${now.adds} in all, ${bytes(rate("written_bytes"))}/s`);
  meters.journal.value = now.journal_queue_max ? now.journal_queue / now.journal_queue_max : 0;
  say(meters.journal.nextSibling, `${now.journal_queue} waiting, ${Math.round(rate("journal_syncs"))} syncs/s`);
  meters["write cache"].value = now.cache_bytes_max ? now.cache_bytes / now.cache_bytes_max : 0;
  say(meters["write cache"].nextSibling, `${bytes(now.cache_bytes)} of ${bytes(now.cache_bytes_max)}`);
  say(cells["entry logs"], `${now.entry_logs}, ${bytes(now.entry_log_alive_bytes)} alive of ${bytes(now.entry_log_bytes)}`);
  say(cells["garbage collection"], `${now.gc_deleted_ledgers} ledgers, ${now.gc_compactions} compactions, ${bytes(now.gc_reclaimed_bytes)} back`);
  say(cells.ledgers, String(now.ledgers));
  meters.disk.value = now.disk_bytes ? 1 - now.disk_free_bytes / now.disk_bytes : 0;
  say(meters.disk.nextSibling, `${bytes(now.disk_free_bytes)} free`);
}

function showLedgers(state, states) {
  const rows = state.ledgers.map((ledger) => {
    const row = make("tr");
    const fragments = make("td", "", { "data-label": "fragments" });
    for (const fragment of ledger.fragments) {
      const box = make("span", "", { class: "fragment" });
      box.append(make("b", String(fragment.first)), " ");
      fragment.bookies.forEach((id, place) => {
        const how = states.get(id);
        const kind = how === "running" ? {} : { class: how === "crashed" || !how ? "gone" : "silent", title: how || "not of this cluster" };
        box.append(place ? ", " : "", make("span", id, kind));
      });
      fragments.append(box);
    }
    const last = ledger.last === null ? "unknown" : ledger.last < 0 ? "none" : String(ledger.last);
    row.append(make("td", String(ledger.id), { "data-label": "ledger" }), make("td", ledger.state, { "data-label": "state" }),
      make("td", ledger.sizes, { "data-label": "sizes" }), make("td", last, { "data-label": "last" }), fragments);
    return row;
  });
  byId("rows").replaceChildren(...rows);
  const more = state.ledger_count > state.ledgers.length ? `the newest ${state.ledgers.length} of ${state.ledger_count}` : String(state.ledger_count);
  say(byId("count"), more);
}

function show(state) {
  say(byId("problem"), state.problem || "");
  if (!state.bookies) return;
  say(byId("uri"), `export BK_METADATA_URI='${state.metadata}'`);
  const old = new Map((before ? before.bookies : []).map((bookie) => [bookie.id, bookie.values]));
  for (const bookie of state.bookies) showBookie(bookie, old.get(bookie.id), before ? state.at - before.at : 0);
  showLedgers(state, new Map(state.bookies.map((bookie) => [bookie.id, bookie.state])));
  for (const done of state.done) {
    if (done.number <= shownDone) continue;
    shownDone = done.number;
    note(`${[done.action, done.bookie].filter(Boolean).join(" ")}${done.error ? `: ${done.error}` : ""}`, Boolean(done.error));
  }
  before = state;
}

function connect() {
  const link = byId("link");
  const source = new EventSource(`/events?token=${encodeURIComponent(token)}`);
  source.onmessage = (event) => {
    link.className = "live";
    say(link, "live");
    show(JSON.parse(event.data));
  };
  source.onerror = () => {
    link.className = "lost";
    say(link, "bk-sim does not answer; trying again");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}

byId("add").addEventListener("click", (event) => act("add", "", event.currentTarget));
connect();
