// The page of one node: events of /v1/live in, nodes out. Every text of others is set as text, never parsed; things are
// found by keys in Maps, never as properties, because names are chosen by strangers.
"use strict";

const CALLS = 200;          // calls that are listed, newest first
const STALE = 10_000;       // ms without any event, of which the daemon sends one every 5 s
const DEAD = 25_000;        // ms without any event after which the connection is made again
const IS_ONCE = new URLSearchParams(location.search).has("once");   // the page as it is now, for a picture
const FRAME = IS_ONCE ? Infinity : 10;   // ms of work on rows within one frame: more of them wait for the next
const TEXT = 4_096;         // characters of one text that are shown
const SLOTS = 32;           // attempts in a strip

// ---- words ----

// Controls, marks that turn the direction of text, and what has no width; as `criprobe` itself escapes them.
// eslint-disable-next-line no-control-regex
const STEERING = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e"
  + "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]", "gu");
const visible = (mark) => {
  const code = mark.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "\u2421" : `\\u{${code.toString(16)}}`;
};
// A text of others as lines, or as one line: nothing in it acts on the page.
const lines = (text) => {
  const whole = String(text ?? "").slice(0, TEXT).replaceAll("\r\n", "\n");
  return whole.replace(STEERING, visible) + (String(text ?? "").length > TEXT ? "…" : "");
};
const line = (text) => lines(text).replaceAll("\n", "\u240a").replaceAll("\t", " ");

const measured = (ms) =>
  ms < 0.05 ? "<0.1ms" : ms < 9.95 ? `${ms.toFixed(1)}ms` : ms < 999.5 ? `${ms.toFixed(0)}ms` : ms < 9_995 ? `${(ms / 1e3).toFixed(2)}s`
    : ms < 59_950 ? `${(ms / 1e3).toFixed(1)}s` : span(ms);
const span = (ms) => {
  const s = Math.max(0, Math.floor(ms / 1e3));
  if (s < 60) return `${s}s`;
  if (s < 600) return `${Math.floor(s / 60)}m${s % 60 ? `${s % 60}s` : ""}`;
  if (s < 3_600) return `${Math.floor(s / 60)}m`;
  if (s < 36_000) return `${Math.floor(s / 3_600)}h${Math.floor(s % 3_600 / 60)}m`;
  if (s < 172_800) return `${Math.floor(s / 3_600)}h`;
  return `${Math.floor(s / 86_400)}d`;
};
// As somebody wrote it: exactly.
const configured = (seconds) => {
  if (seconds < 1) return `${+(seconds * 1e3).toFixed(3)}ms`;
  const h = Math.floor(seconds / 3_600), m = Math.floor(seconds / 60) % 60, s = +(seconds % 60).toFixed(3);
  return [[h, "h"], [m, "m"], [s, "s"]].filter(([number]) => number).map((part) => part.join("")).join("");
};
const clock = (time) => {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : `${date.toISOString().slice(11, 19)}Z`;
};
const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

const RESULTS = new Map([["s", "success"], ["w", "warning"], ["f", "failure"], ["e", "error"]]);
const PHASES = ["queue", "start", "run", "drain"];
const SLOW = 500;           // ms after which it is asked why, as the daemon does
const BLAME = new Map([
  ["queue", "the runtime took them up late"], ["start", "the runtime started them slowly"],
  ["drain", "their output was held open after they had ended"],
]);

// What a row is, for order, sign and word. The order of the entries is that of the list and of the chips.
const KINDS = new Map([
  ["failing", { sign: "bad", word: "failing" }], ["untried", { sign: "odd", word: "cannot be tried" }],
  ["invalid", { sign: "odd", word: "invalid" }], ["slow", { sign: "slow", word: "slow" }],
  ["unknown", { sign: "idle", word: "no verdict" }], ["paused", { sign: "paused", word: "paused" }],
  ["ok", { sign: "ok", word: "ok" }],
]);
const RANK = new Map([...KINDS.keys()].map((kind, rank) => [kind, rank]));
const kindOf = (row) => {
  if (row.isInvalid) return "invalid";
  if (row.isFailing) return row.state === "failure" ? "failing" : "untried";
  if (row.phase === "paused") return "paused";
  if (row.slow) return "slow";
  return row.state === "success" ? "ok" : "unknown";
};
const wordOf = (row, kind) => (kind === "unknown" && ["waiting", "stopped"].includes(row.phase) ? row.phase : KINDS.get(kind)?.word);

// ---- nodes ----

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const el = (tag, kind, ...inside) => {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  node.append(...inside.filter((one) => one !== "" && one != null));
  return node;
};
const bdi = (text, kind) => el("bdi", kind, line(text));
const sign = (name) => {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "sign");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(SVG, "use"));
  svg.firstChild.setAttribute("href", `#s-${name}`);
  return svg;
};
const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const mark = (node, name, value) => { if (node.getAttribute(name) !== value) node.setAttribute(name, value); };
const hide = (node, isHidden) => { if (node.hidden !== isHidden) node.hidden = isHidden; };
const clone = (id) => {
  const node = $(id).content.firstElementChild.cloneNode(true);
  const at = {};
  for (const one of node.querySelectorAll("[data-f]")) at[one.dataset.f] = one;
  return { node, at };
};
// moveBefore would keep more by itself, but Chromium paints what it moved as it was before.
const move = (list, node, at) => {
  const scrolled = [...node.querySelectorAll(".attempts, .open .output")].map((one) => [one, one.scrollTop, one.scrollLeft]);
  list.insertBefore(node, at);
  for (const [one, top, left] of scrolled) [one.scrollTop, one.scrollLeft] = [top, left];
};
// Puts the nodes into the list in this order, and removes others. What is in its place already is not touched, so that
// focus, selection and scrolling stay.
const arrange = (list, nodes) => {
  const focused = document.activeElement;
  const keep = new Set(nodes);
  for (const old of [...list.children]) if (!keep.has(old)) old.remove();
  let at = list.firstElementChild;
  for (const node of nodes) {
    // One that goes down is moved itself, not all those that come up for it.
    if (at && at !== node && at.nextElementSibling === node) {
      move(list, at, null);
      at = node;
    }
    if (node === at) at = at.nextElementSibling;
    else move(list, node, at);
  }
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
};

// ---- what is known ----

const rows = new Map();     // key -> { row, kind, text, uid, since, view }
const groups = new Map();   // pod uid -> { node, at, list }
const calls = [];           // newest first: { id, call, text, data, node } or { id, note, node }
const dirty = new Set();    // keys whose node is not up to date
const ended = new Set();    // ids of the newest calls that have ended, of which the last look at those in flight may not know
let top5 = null, status = null, hello = null, hidden = 0, callId = 0;
let isListed = false;       // whether all rows have come at least once: before that, none means nothing
let heard = 0, isOpen = false, skew = 0, isPaused = false, unseen = 0, by = "pods";
let words = [], only = "", current = null;
const now = () => Date.now() + skew;   // by the daemon's clock

// ---- the stream ----

let source = null, retry = null, tries = 0, asked = 0;
let known = new Set();   // what calls were received as before the connection was made again: the newest come again
const EVENTS = new Map([
  ["hello", (it) => {
    if (hello && hello.version !== it.version) location.reload();   // its page may be another one, too
    [hello, isOpen, tries] = [it, true, 0];
    ended.clear();   // another daemon may use the same ids
    skew = (Date.parse(it.at) || Date.now()) - Date.now();
    known = new Set(calls.map((one) => one.data).filter(Boolean));
    gap = 0;
    if (calls.length) {
      takeCall({ note: GAP });
      gap = callId;
    }
    later("all");
  }],
  ["rows", (it) => takeRows(it)],
  ["call", (call, data) => {
    if (known.delete(data)) return closeGap();
    takeCall({ call, data, text: haystack(call.namespace, call.pod, call.container, call.method, call.peer?.comm,
      call.exec?.command?.join(" "), call.code) });
    if (!call.id || call.streamOpened) return;   // what runs on in a stream ends with a record of its own
    ended.add(call.id);
    if (ended.size > 4 * CALLS) ended.delete(ended.values().next().value);
    if (flying.has(call.id)) later("flight");
  }],
  ["missed", (it) => takeCall({ note: `${many(it.calls, "call")} came too fast to be listed` })],
  ["top", (it) => { top5 = it; later("top"); }],
  ["status", (it) => { status = it; later("status"); }],
  ["beat", (it) => { skew = (Date.parse(it.at) || now()) - Date.now(); }],
]);
const take = (name, data) => {
  heard = Date.now();
  EVENTS.get(name)?.(JSON.parse(data), data);
};
const connect = () => {
  clearTimeout(retry);
  source?.close();
  asked = Date.now();
  source = new EventSource("v1/live");
  for (const name of EVENTS.keys()) source.addEventListener(name, (event) => take(name, event.data));
  // The browser would try again by itself, but not after an answer other than 200, and without an end of its patience.
  source.onerror = () => {
    source.close();
    isOpen = false;
    tries += 1;
    retry = setTimeout(connect, Math.min(15_000, 500 * 2 ** tries) * (0.75 + Math.random() / 2));
    tick();
  };
};
const watch = () => {
  if (source?.readyState !== EventSource.CLOSED && Date.now() - Math.max(heard, asked) > DEAD) source.onerror();
};
// All at once, before the browser takes the page for loaded: whoever makes a picture then has all of it.
const takeOnce = () => {
  const request = new XMLHttpRequest();
  request.open("GET", "v1/live?once=true", false);
  try { request.send(); } catch { /* The page says that there is no answer. */ }
  for (const [, name, data] of request.responseText.matchAll(/event: (\w+)\ndata: ([^\n]*)\n/g)) take(name, data);
  due.add("all");
  render();
};
const haystack = (...parts) => parts.filter(Boolean).join(" ").slice(0, 2_048).toLowerCase();

// All rows may come in several events: what is not among them goes with the last one.
let leftover = new Set();
const takeRows = (it) => {
  if (it.reset) leftover = new Set(rows.keys());
  for (const row of it.rows ?? []) {
    const kind = row.type || row.isInvalid ? kindOf(row) : "bare";
    const text = haystack(row.namespace, row.pod, row.container, row.type, row.handler, row.source, row.image,
      row.containerState, wordOf(row, kind), targetOf(row));
    const known = rows.get(row.key) ?? { view: null, uid: row.key.split("/", 1)[0] };
    rows.set(row.key, Object.assign(known, { row, kind, text, since: Date.parse(row.since) }));
    leftover.delete(row.key);
    dirty.add(row.key);
  }
  drop(it.gone ?? []);
  if (!it.more) {
    drop(leftover);
    isListed = true;
  }
  hidden = it.hidden ?? hidden;
  later("rows");
};
const drop = (gone) => {
  for (const key of gone) {
    rows.get(key)?.view?.node.remove();
    rows.delete(key);
    dirty.delete(key);
    leftover.delete(key);
  }
};
const GAP = "reconnected: calls of the time between may be missing";
let gap = 0;   // the note of this connection
const closeGap = () => {
  const at = calls.findIndex((one) => one.id === gap);
  if (at >= 0) calls.splice(at, 1);
  gap = 0;
  later("calls");
};
const takeCall = (one) => {
  calls.unshift({ id: callId += 1, node: null, ...one });
  calls.length = Math.min(calls.length, CALLS);
  later("calls");
};

// ---- rendering: once a frame, and only what has changed ----

const due = new Set();
let frame = 0;
const later = (what) => {
  due.add(what);
  frame ||= requestAnimationFrame(render);
};
const render = () => {
  frame = 0;
  const is = (what) => due.has(what) || due.has("all");
  const work = [["rows", showRows], ["status", showStatus], ["top", showTop], ["flight", showFlight], ["calls", showCalls]].filter(([what]) => is(what));
  due.clear();
  for (const [, show] of work) show();
  tick();
};
const matches = (text) => words.every((word) => text.includes(word));

const showRows = () => {
  const start = performance.now();
  // Bad news first: of many rows, not all get their node within this frame.
  const waiting = [...dirty].map((key) => rows.get(key)).filter((it) => it && it.kind !== "bare");
  waiting.sort((a, b) => RANK.get(a.kind) - RANK.get(b.kind));
  for (const it of waiting) {
    it.view ??= newProbe(it.row.key);
    fill(it);
    dirty.delete(it.row.key);
    if (performance.now() - start > FRAME) { later("rows"); break; }
  }
  const counts = new Map(), matching = new Map(), pods = new Map(), bare = [];
  const count = (kinds, kind) => kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  for (const it of rows.values()) {
    if (it.kind === "bare") {
      dirty.delete(it.row.key);
      if (matches(it.text)) bare.push(it.row);
      continue;
    }
    count(counts, it.kind);
    if (!matches(it.text)) continue;
    count(matching, it.kind);
    if (!it.view || (only && it.kind !== only)) continue;
    const pod = pods.get(it.uid) ?? { uid: it.uid, rank: 99, probes: [], row: it.row };
    pod.rank = Math.min(pod.rank, RANK.get(it.kind));
    pod.probes.push(it);
    pods.set(it.uid, pod);
  }
  // A row does not move away from under a pointer or from a reader: what is listed keeps its order meanwhile.
  const isStill = isReading() && $("pods").childElementCount > 0;
  const place = new Map(isStill ? [...$("pods").children].map((node, at) => [node, at]) : []);
  const name = (row) => `${row.namespace}/${row.pod}`;
  const order = (pod) => place.get(groups.get(pod.uid)?.node) ?? (isStill ? 1e6 : 0);
  const sorted = [...pods.values()].sort((a, b) =>
    order(a) - order(b) || a.rank - b.rank || (name(a.row) < name(b.row) ? -1 : name(a.row) > name(b.row) ? 1 : 0));
  for (const pod of sorted) showPod(pod);
  for (const [uid] of groups) if (!pods.has(uid)) groups.delete(uid);
  arrange($("pods"), sorted.map((pod) => groups.get(pod.uid).node));
  showSummary(counts, matching);
  showBare(bare);
  if (!current?.isConnected) setCurrent(document.querySelector(".probe .line"), false);
};
let lastMove = 0;
const isReading = () => performance.now() - lastMove < 4_000 && $("pods").matches(":hover");

const showPod = (pod) => {
  let group = groups.get(pod.uid);
  if (!group) {
    group = clone("t-pod");
    group.list = group.node.querySelector("ul");
    groups.set(pod.uid, group);
  }
  const { at } = group;
  say(at.pod, line(pod.row.pod));
  say(at.namespace, line(pod.row.namespace));
  say(at.ready, pod.row.podReady === false ? "not ready" : "");
  mark(group.node, "data-kind", [...KINDS.keys()][pod.rank]);
  pod.probes.sort((a, b) => RANK.get(a.kind) - RANK.get(b.kind) || (a.row.key < b.row.key ? -1 : 1));
  arrange(group.list, pod.probes.map((it) => it.view.node));
};

const newProbe = (key) => {
  const view = clone("t-probe");
  view.line = view.node.querySelector(".line");
  view.strip = new Map([...view.at.strip.children].map((path) => [path.classList[0], path]));
  view.line.addEventListener("click", () => toggle(key));
  for (const node of view.node.querySelectorAll(".words"))
    node.addEventListener("click", () => { if (!getSelection()?.toString()) toggle(key); });
  view.at.strip.addEventListener("pointermove", (event) => showTip(event, rows.get(key)));
  view.at.strip.addEventListener("pointerleave", () => hide($("tip"), true));
  return view;
};
const flash = (node) => {
  node.classList.add("flipped");
  setTimeout(() => node.classList.remove("flipped"), 2_000);
};
const newest = (row) => row.attempts?.at(-1);
const fill = (it) => {
  const { row, kind, view } = it, { at } = view, bad = ["failing", "untried", "invalid"].includes(kind);
  if (view.node.dataset.kind && view.node.dataset.kind !== kind) flash(view.node);
  mark(view.node, "data-kind", kind);
  mark(at.sign, "href", `#s-${KINDS.get(kind).sign}`);
  say(at.word, wordOf(row, kind));
  say(at.container, line(row.container));
  say(at.type, line(row.type));
  const isRunning = !row.containerState || row.containerState === "running";
  say(at.handler, line(row.handler) + (isRunning ? "" : `, ${line(row.containerState)}`));
  say(at.target, targetOf(row));
  say(at.took, newest(row) ? measured(newest(row)[2]) : "");
  say(at.reason, kind === "ok" ? "" : line(row.reason));
  say(at.slow, row.slow ? `${row.slowAt ? `${clock(row.slowAt)}: ` : ""}${line(row.slow)}` : "");
  // Of an error, the reason says the same.
  say(at.output, (bad && !(kind === "untried" && row.reason)) || view.isOpen ? lines(row.output).trimEnd() : "");
  for (const node of [at.reason, at.slow]) hide(node.parentNode, !node.textContent);
  hide(at.output, !at.output.textContent);
  drawStrip(view, row);
  if (view.isOpen) fillMore(it);
};

// One path for each result: 2,000 rows are 8,000 paths, not 64,000 bars. Shapes differ, too: a failure has a cap, a
// warning a gap, and an error is hollow.
const height = (ms) => Math.max(2, Math.min(18, 2 + 16 * Math.log10(Math.max(1, ms)) / 4));   // 1 ms to 10 s
const drawStrip = (view, row) => {
  const paths = new Map([...RESULTS.keys()].map((result) => [result, ""]));
  const attempts = row.attempts ?? [], counts = new Map();
  attempts.slice(-SLOTS).forEach(([, result, ms], index, shown) => {
    const x = (SLOTS - shown.length + index) * 5, h = Math.round(height(ms) * 2) / 2, y = 24 - h;
    const bar = result === "e" ? `M${x + .5} 4.5h3v19h-3z`
      : result === "f" ? `M${x} ${y}h4V24h-4zM${x} 0h4v4h-4z`
      : result === "w" ? `M${x} ${y}h4v${h / 2 - 1}h-4zM${x} ${y + h / 2 + 1}h4V24h-4z`
      : `M${x} ${y}h4V24h-4z`;
    paths.set(result, (paths.get(result) ?? "") + bar);
    counts.set(result, (counts.get(result) ?? 0) + 1);
  });
  for (const [result, path] of view.strip) mark(path, "d", paths.get(result));
  const sum = [...counts].map(([result, count]) => `${count} ${RESULTS.get(result) ?? ""}`).join(", ");
  mark(view.at.strip, "aria-label", attempts.length ? `newest attempts: ${sum}` : "no attempts yet");
};
const attemptWords = ([at, result, ms, code, , route]) => `${RESULTS.get(result) ?? "?"}${code == null ? "" : `, code ${code}`}, ${
  measured(ms)}${route ? `, exec route: ${route}` : ""}, ${clock(at)}, ${span(now() - at)} ago`;
const showTip = (event, it) => {
  const box = event.currentTarget.getBoundingClientRect(), tip = $("tip");
  const shown = (it?.row.attempts ?? []).slice(-SLOTS);
  const slot = Math.floor((event.clientX - box.left) / box.width * SLOTS) - (SLOTS - shown.length);
  hide(tip, !shown[slot]);
  if (!shown[slot]) return;
  say(tip, attemptWords(shown[slot]));
  tip.style.left = `${Math.max(8, Math.min(event.clientX - tip.offsetWidth / 2, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${box.top - tip.offsetHeight - 6}px`;
};

const toggle = (key) => {
  const it = rows.get(key);
  if (!it?.view) return;
  it.view.isOpen = !it.view.isOpen;
  it.view.node.classList.toggle("open", it.view.isOpen);
  mark(it.view.line, "aria-expanded", String(it.view.isOpen));
  hide(it.view.at.more, !it.view.isOpen);
  setCurrent(it.view.line, false);
  fill(it);
};
// What an attempt does.
const targetOf = ({ definition, client }) => {
  const { exec = client, httpGet: http, tcpSocket: tcp, grpc } = definition ?? {};
  if (exec) return command(exec);
  if (http) return line(`${http.scheme.toLowerCase()}://${http.host ?? ""}:${http.port}${http.path || "/"}`);
  return tcp ? line(`${tcp.host ?? ""}:${tcp.port}`) : grpc ? line(`:${grpc.port} ${grpc.service}`.trim()) : "";
};
// The rest of its definition, in the words of `criprobe describe`.
const definitionOf = ({ definition: it, client, periodSeconds: period }) => {
  if (client) return [["client", `${client.comm}, user ${client.uid}`], ["timing", [period && `about every ${configured(period)}`,
    client.timeoutSeconds ? `timeout ${configured(client.timeoutSeconds)}` : "no timeout"].filter(Boolean).join(", ")]];
  if (!it) return [];
  const delay = it.initialDelaySeconds ? `start delay ${configured(it.initialDelaySeconds)}` : "no start delay";
  const headers = it.httpGet?.httpHeaders ?? [], inRow = (count, one, more) => (count === 1 ? `1 ${one}` : `${count} ${more} in a row`);
  return [["headers", headers.map((header) => header.name).join(", ")],
    ["timing", `every ${configured(it.periodSeconds)}, timeout ${configured(it.timeoutSeconds)}, ${delay}`],
    ["starting", it.startPeriodSeconds && `for ${configured(it.startPeriodSeconds)} failures do not count before the first success`],
    ["verdict", `failure after ${inRow(it.failureThreshold, "failure", "failures")}, success after ${
      inRow(it.successThreshold, "success", "successes")}`]];
};
// All about one probe. Its name is what `criprobe describe` takes.
const fillMore = ({ row, view, since }) => {
  const part = (text) => String(text).replaceAll("%", "%25").replaceAll("/", "%2F");
  const name = [row.namespace, row.pod, row.container, row.type].map(part).join("/");
  const facts = [["probe", name], [row.handler, targetOf(row)],
    ["exec route", row.execRoute && row.execRoute + (row.execReason ? ` (${row.execReason})` : "")], ...definitionOf(row), ["image", row.image], ["source", row.source], ["container", row.containerState],
    ["phase", row.phase], ["reason", view.at.reason.textContent ? "" : row.reason],
    ["since", since && `${new Date(since).toISOString().slice(0, 19).replace("T", " ")}Z`]];
  const list = el("dl");
  for (const [term, text] of facts) if (text) {
    const isCode = term === row.handler;
    list.append(el("dt", "", line(term)), el("dd", "", isCode ? el("code", "", bdi(text)) : bdi(text)));
  }
  const body = el("tbody"), attempts = (row.attempts ?? []).slice(-SLOTS).reverse();
  const heads = ["began", "result", "took", "code", ...(attempts.some((attempt) => attempt[5]) ? ["route"] : [])];
  for (const [at, result, ms, code, phases, route] of attempts) {
    const word = RESULTS.get(result) ?? "?";
    body.append(el("tr", `r-${word}`, el("td", "num", clock(at)), el("td", "", word), el("td", "num", measured(ms)),
      el("td", "num", code == null ? "" : String(code)), heads.length > 4 ? el("td", "", route ?? "") : ""));
    if (!phases) continue;
    const cell = el("td", "", typeof phases === "string" ? unknownOf(phases) : whereOf(PHASES.map((phase, at) => [phase, phases[at]]), ms));
    cell.colSpan = heads.length;
    body.append(el("tr", "", cell));
  }
  const head = el("tr", "", ...heads.map((text) => el("th", "", text)));
  const scroll = el("div", "attempts", el("table", "", el("thead", "", head), body));
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "attempts, newest first");
  const { more } = view.at, at = more.querySelector(".attempts")?.scrollTop ?? 0;
  // Whoever reads the table or marks something keeps what is there.
  if (more.contains(document.activeElement) || (more.matches(":hover") && getSelection()?.toString())) return;
  more.replaceChildren(list, scroll);
  scroll.scrollTop = at;
};

const showSummary = (counts, matching) => {
  const sum = (kinds) => [...kinds.values()].reduce((all, some) => all + some, 0), all = sum(counts);
  const shown = only ? matching.get(only) ?? 0 : sum(matching), isFiltered = words.length || only;
  const count = (kind) => counts.get(kind) ?? 0, bad = count("failing"), odd = count("untried"), wrong = count("invalid");
  say($("headline"), !hello ? "Waiting for the daemon"
    : bad ? many(bad, "probe fails", "probes fail")
    : odd ? many(odd, "probe cannot be tried", "probes cannot be tried")
    : wrong ? many(wrong, "definition is invalid", "definitions are invalid")
    : !isListed ? "Waiting for the list"
    : !all ? "No probes on this node"
    : count("unknown") ? "No probe fails" : "All probes are fine");
  const kind = bad ? "failing" : odd || wrong ? "untried" : isListed ? "ok" : "unknown";
  mark($("headline"), "data-kind", kind);
  const pods = new Set([...rows.values()].map((it) => it.uid)).size;
  say($("sum"), !isListed ? "" : isFiltered ? `${shown.toLocaleString("en")} of ${many(all, "probe")} · `
    : `${many(all, "probe")} in ${many(pods, "pod")} · `);
  const news = new Map([["failing", `✕ ${bad} failing`], ["untried", `! ${odd + wrong} cannot be tried`], ["ok", "✓"]]).get(kind);
  const title = [news, line(hello?.node), "criprobe"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
  const colour = new Map([["failing", "#c0362c"], ["untried", "#7b4fc9"], ["ok", "#2f7d4f"]]).get(kind) ?? "#8a8a8a";
  const icon = `<svg xmlns="${SVG}" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="${colour}"/></svg>`;
  mark($("icon"), "href", `data:image/svg+xml,${encodeURIComponent(icon)}`);
  const chips = [...KINDS].filter(([kind]) => matching.has(kind) || kind === only).map(([kind, { sign: name, word }]) => {
    const known = $("chips").querySelector(`[data-kind="${kind}"]`) ?? el("button", "chip", sign(name), el("b"), ` ${word}`);
    known.type = "button";
    mark(known, "data-kind", kind);
    mark(known, "aria-pressed", String(only === kind));
    say(known.querySelector("b"), (matching.get(kind) ?? 0).toLocaleString("en"));
    known.onclick = () => setOnly(only === kind ? "" : kind);
    return known;
  });
  arrange($("chips"), chips);
  say($("nothing"), !isListed ? "" : isFiltered && !shown && all ? "No probe matches the filter. Esc clears it."
    : hidden ? `${many(hidden, "more row is", "more rows are")} not shown: a page shows 2,000, failing ones first.`
      : !all ? "Probes come from annotations, rules and HEALTHCHECKs; clients' own are recognised by their rhythm." : "");
  hide($("nothing"), !$("nothing").textContent);
};
const showBare = (bare) => {
  hide($("bare"), !bare.length || only !== "");
  say($("bare").querySelector("summary"), `${many(bare.length, "pod")} without probes`);
  const name = (row) => `${row.namespace}/${row.pod}`;
  bare.sort((a, b) => (name(a) < name(b) ? -1 : 1));
  const list = $("bare").querySelector("ul");
  const nodes = $("bare").open ? bare.map((row) => {
    const ready = row.podReady === false ? "not ready" : line(row.reason);
    return el("li", "", bdi(row.namespace, "soft"), "/", bdi(row.pod), ready ? el("span", "soft", ` ${ready}`) : "");
  }) : [];
  if (list.textContent !== nodes.map((node) => node.textContent).join("")) list.replaceChildren(...nodes);
};

const showStatus = () => {
  const runtime = status?.runtime, about = [];
  say($("node"), line(hello?.node));
  const name = [runtime?.name || "the runtime", runtime?.version].filter(Boolean).map(line).join(" ");
  if (runtime) about.push(el("bdi", "", name), runtime.state === "away" ? " is away" : " answers");
  if (hello) about.push(` · criprobe ${line(hello.version)}`);
  $("about").replaceChildren(...about);
  const trouble = (status?.trouble ?? []).map((text) => line(text));
  if (runtime?.state === "away" && !trouble.length) trouble.push(`the runtime is away: ${line(runtime.reason)}`);
  if ([...$("trouble").children].map((node) => node.textContent).join("\n") !== trouble.join("\n"))
    $("trouble").replaceChildren(...trouble.map((text) => el("p", "", sign("odd"), el("bdi", "", text))));
  hide($("trouble"), !trouble.length);
};

// ---- exec cost and calls in flight ----

const keyed = new Map();   // list's id -> key -> node, for lists that are made anew from time to time
const reuse = (id, key, make) => {
  const known = keyed.get(id) ?? new Map();
  keyed.set(id, known);
  const node = known.get(key) ?? make();
  known.set(key, node);
  return node;
};
const settle = (id, keys, nodes) => {
  const keep = new Set(keys);
  for (const key of keyed.get(id)?.keys() ?? []) if (!keep.has(key)) keyed.get(id).delete(key);
  arrange($(id), nodes);
};
const command = (exec) => line(exec?.command?.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word}'`)).join(" "));

const showTop = () => {
  hide($("cost"), !top5);
  if (!top5) return;
  say($("window"), `last ${span((top5.windowSeconds ?? 300) * 1e3)}`);
  const cpu = top5.runtimeCpu;
  const each = cpu?.secondsPerExec ? `, at most ${measured(cpu.secondsPerExec * 1e3)} of CPU time per exec` : "";
  say($("cpu"), cpu ? `The runtime uses ${Number(cpu.cores).toFixed(2)} cores${each}.` : "");
  hide($("cpu"), !cpu);
  const costs = new Map();
  for (const cost of [...(top5[by] ?? []), ...(top5.others?.[by] ?? [])]) {
    const key = JSON.stringify([cost.namespace, cost.pod, by === "commands" && [cost.container, cost.command]]);
    const known = costs.get(key) ?? { key, cost, parts: [], total: 0 };
    known.parts.push(cost);
    known.total += cost.totalSeconds;
    costs.set(key, known);
  }
  // Bars do not change places under a pointer.
  const seats = new Map($("costs").matches(":hover") ? [...$("costs").children].map((node, at) => [node, at]) : []);
  const order = ({ key }) => seats.get(keyed.get("costs")?.get(key)) ?? (seats.size ? 1e6 : 0);
  const sorted = [...costs.values()].sort((a, b) => order(a) - order(b) || b.total - a.total).filter(({ cost }) =>
    matches(haystack(cost.namespace, cost.pod, cost.container, cost.command?.join(" "))));
  const most = Math.max(1e-9, ...sorted.flatMap((it) => it.parts.map((part) => part.totalSeconds)));
  settle("costs", sorted.map((it) => it.key), sorted.map((it) => {
    const node = reuse("costs", it.key, () => el("li"));
    const name = it.cost.command?.length ? el("code", "", el("bdi", "", command(it.cost))) : "";
    it.parts.sort((a, b) => b.isProbe - a.isProbe || (a.execRoute === "session") - (b.execRoute === "session"));
    node.replaceChildren(el("p", "cost-name", name, place(it.cost) || el("span", "soft", "all others")),
      ...it.parts.map((part) => costBar(part, most)));
    return node;
  }));
  if (!sorted.length) arrange($("costs"), [el("li", "soft", words.length ? "No exec matches the filter." : "No execs yet.")]);
  showFlight();
};
const named = ({ phase, ms }) => `${phase === "unknown" ? "not known" : phase} ${measured(ms)}`;
const phaseBar = (parts) => {
  const bar = el("span", "bar");
  for (const one of parts) {
    const piece = el("i", one.phase);
    piece.style.flexGrow = String(one.share);
    piece.title = named(one);
    bar.append(piece);
  }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map(named).join(", "));
  return bar;
};
// Where the time of one command went: as a bar, and in words.
const whereOf = (phases, total) => {
  const parts = phases.filter(([, ms]) => ms != null).map(([phase, ms]) => ({ phase, ms, share: ms / total * 100 }));
  const bar = phaseBar(parts.filter(({ share }) => share > 0.5));
  bar.setAttribute("aria-hidden", "true");   // the words say the same
  return el("div", "where", bar, el("span", "soft", parts.map(named).join(", ")));
};
const unknownOf = (why) => el("p", "soft", "phases not known: ", bdi(why));
const costBar = (part, most) => {
  const known = PHASES.map((phase) => [phase, part.phases?.[`${phase}Seconds`] ?? 0]);
  const rest = Math.max(0, part.totalSeconds - known.reduce((sum, [, seconds]) => sum + seconds, 0));
  const parts = [...known, ["unknown", rest]].map(([phase, seconds]) => ({ phase, ms: seconds * 1e3, share: seconds / part.totalSeconds * 100 }))
    .filter(({ share }) => share > 0.2);
  const bar = phaseBar(parts);
  bar.classList.add(part.isProbe ? "probes" : "people");
  bar.style.inlineSize = `${Math.max(1, part.totalSeconds / most * 100)}%`;
  const worst = parts.find(({ share }) => share > 50), isLong = part.totalSeconds >= 1;
  const why = isLong && BLAME.has(worst?.phase) ? `${Math.round(worst.share)} % ${worst.phase}: ${BLAME.get(worst.phase)}` : "";
  const numbers = [many(part.calls, "call"), part.failures ? `${part.failures.toLocaleString("en")} failed` : "",
    `p50 ${measured(part.p50Seconds * 1e3)}`, `p99 ${measured(part.p99Seconds * 1e3)}`].filter(Boolean).join(", ");
  return el("div", "cost", el("span", "track", bar), el("b", "num", measured(part.totalSeconds * 1e3)),
    el("span", "figures", el("span", "who", part.execRoute === "session" ? "probes by session" : part.isProbe ? "probes" : "people"), ` ${numbers}`), why && el("span", "why", why));
};
const flying = new Set();   // ids of the calls that are listed
const showFlight = () => {
  const { calls: known = [], total = 0 } = top5?.inFlight ?? {};
  // What has just begun has most likely ended since.
  const all = known.filter((call) => call.ageSeconds >= 1 && !ended.has(call.id) && matches(haystack(call.namespace, call.pod,
    call.container, call.method, call.caller?.comm, call.exec?.command?.join(" "))));
  const shown = all.slice(0, 12);
  hide($("flight"), !shown.length);
  say($("flight-count"), `${all.length}${total > known.length && all.length === known.length ? "+" : ""}`);
  flying.clear();
  for (const { id } of shown) flying.add(id);
  const keys = shown.map((call, at) => call.id || JSON.stringify([call.began, call.pod, call.container, call.exec?.command, at]));
  settle("flights", keys, shown.map((call, at) => reuse("flights", keys[at], () => {
    const age = el("b", "num age"), what = el("span", "", bdi(call.method), " ", place(call), " ");
    age.dataset.began = call.began;
    if (call.exec) what.append(el("code", "", el("bdi", "", command(call.exec))));
    return el("li", "", age, what);
  })));
  tick();
};
const place = (it) => it.pod
  ? el("span", "place", bdi(it.namespace, "soft"), el("span", "soft", "/"), bdi(it.pod), ...(it.container ? [el("span", "soft", "/"), bdi(it.container)] : []))
  : "";

// ---- the list of calls ----

const callEnd = (call) => {
  if (call.end !== "complete") return ["bad", call.end === "lost" ? "connection lost" : call.end === "reset" ? "reset by the runtime" : "cancelled"];
  if (call.code !== "OK") return ["bad", call.code || "no answer"];
  if (call.exec?.exitCode) return ["bad", `exit ${call.exec.exitCode}`];
  return ["ok", call.streamOpened ? "opened" : "ok"];
};
const newCall = (one) => {
  if (!one.call) return el("li", "missed", one.note);
  const { call } = one, [kind, end] = callEnd(call), ms = call.durationSeconds * 1e3;
  const seconds = (phase) => call.exec.phases[`${phase}Seconds`], isSlow = ms >= SLOW;
  const caller = bdi(call.peer?.comm || "unknown", "soft");
  if (call.peer?.pid) caller.title = `pid ${call.peer.pid}`;
  const node = el("li", isSlow ? "long" : "", el("p", "", el("span", "num soft", clock(call.at)), el("b", "", bdi(call.method)),
    caller, el("span", `end ${kind}`, sign(kind), bdi(end)), el("span", "num took", measured(ms))));
  node.append(place(call), ...(call.exec ? [el("code", "", el("bdi", "", command(call.exec)))] : []));
  if (call.message) node.append(el("p", "message", bdi(call.message)));
  if (call.exec?.culprit) node.append(el("p", "why", bdi(call.exec.culprit)));
  if (call.exec?.phases && isSlow) node.append(whereOf(PHASES.map((phase) => [phase, seconds(phase) == null ? null : seconds(phase) * 1e3]), ms));
  else if (call.exec?.phasesUnknown && isSlow) node.append(unknownOf(call.exec.phasesUnknown));
  node.dataset.kind = kind;
  return node;
};
const isHeld = () => isPaused || $("list").matches(":hover") || $("list").contains(document.activeElement);
const showCalls = () => {
  const held = isHeld(), first = calls[0]?.id ?? 0;
  if (!held) unseen = first;
  const fresh = held ? calls.filter((one) => one.id > unseen && one.call && matches(one.text)).length : 0;
  say($("held"), fresh ? `${fresh === CALLS ? "over " : ""}${fresh} new` : isPaused ? "paused" : "");
  if (held) return;
  const shown = calls.filter((one) => !one.call || matches(one.text));
  arrange($("list"), shown.length ? shown.map((one) => one.node ??= newCall(one))
    : !isListed ? []
    : [el("li", "soft", words.length && calls.length ? "No call matches the filter." : "No calls yet. Calls that criprobe makes for its own probes are not among them.")]);
};

// ---- every second ----

const tick = () => {
  if (document.hidden && !IS_ONCE) return;
  for (const it of rows.values())
    if (it.since && it.view?.node.isConnected) say(it.view.at.since, span(now() - it.since));
  for (const age of document.querySelectorAll(".age")) say(age, span(now() - Date.parse(age.dataset.began)));
  if (IS_ONCE) {
    say($("link-words"), isListed ? `as of ${clock(hello.at)}` : hello ? "the list is missing" : "no answer");
    return;
  }
  const quiet = Date.now() - heard, isLive = isOpen && quiet < STALE;
  const state = isLive ? "live" : heard ? "stale" : "new";
  if ($("link").dataset.state !== state) {
    $("link").dataset.state = document.body.dataset.link = state;
    say($("said"), state === "live" ? "live" : state === "stale" ? "The data is stale: reconnecting" : "");
  }
  say($("link-words"), isLive ? "live" : heard ? `stale for ${span(quiet)}: reconnecting` : tries ? "no answer: retrying" : "connecting");
};

// ---- what people do ----

const setCurrent = (line, isFocused = true) => {
  if (!line) return;
  if (current) current.tabIndex = -1;
  current = line;
  line.tabIndex = 0;
  if (isFocused) {
    line.focus({ preventScroll: true });
    line.closest(".probe").scrollIntoView({ block: "nearest" });
  }
};
const step = (by_) => {
  const all = [...document.querySelectorAll(".probe .line")], at = all.indexOf(document.activeElement);
  setCurrent(at < 0 ? (current?.isConnected ? current : all[0]) : all[Math.max(0, Math.min(all.length - 1, at + by_))]);
};
const setFilter = (text) => {
  words = text.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 16);
  if ($("filter").value !== text) $("filter").value = text;
  remember();
};
const setOnly = (kind) => {
  only = kind;
  remember();
};
const remember = () => {
  const hash = new URLSearchParams();
  if ($("filter").value.trim()) hash.set("filter", $("filter").value.trim());
  if (only) hash.set("only", only);
  history.replaceState(null, "", `${location.pathname}${location.search}${hash.size ? `#${hash}` : ""}`);
  later("all");
};
const recall = () => {
  const hash = new URLSearchParams(location.hash.slice(1));
  only = KINDS.has(hash.get("only")) ? hash.get("only") : "";
  setFilter((hash.get("filter") ?? "").slice(0, 200));
};
const THEMES = ["auto", "light", "dark"];
const store = (name, value) => {
  try { return value === undefined ? localStorage.getItem(name) : localStorage.setItem(name, value); } catch { return null; }
};
const setTheme = (theme) => {
  const known = THEMES.includes(theme) ? theme : "auto";
  document.documentElement.dataset.theme = known;
  store("criprobe-theme", known);
  const button = $("theme");
  if (!button) return;
  say(button.querySelector("span"), known);
  button.setAttribute("aria-label", `Theme: ${known}`);
  button.title = "Light, dark, or as the system (t)";
};
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
const setPaused = (is) => {
  isPaused = is;
  $("pause").setAttribute("aria-pressed", String(is));
  say($("pause"), is ? "Go on" : "Pause");
  later("calls");
};
const escape = () => {
  const open = [...rows.values()].find((it) => it.view?.isOpen && it.view.node.contains(document.activeElement));
  if (open) { toggle(open.row.key); open.view.line.focus(); return; }
  only = "";
  setFilter("");
  $("filter").blur();
};
const KEYS = new Map([
  ["/", () => $("filter").select()], ["Escape", escape], ["?", () => $("keys").showModal()], ["t", nextTheme],
  ["p", () => setPaused(!isPaused)], ["j", () => step(1)], ["k", () => step(-1)], ["ArrowDown", () => step(1)], ["ArrowUp", () => step(-1)],
]);
const onKey = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const isTyping = event.target === $("filter"), key = event.key;
  if (isTyping && key === "Enter") { event.preventDefault(); step(0); }
  if (isTyping && key !== "Escape" && key !== "ArrowDown") return;
  // Arrows scroll, as everywhere, unless a probe has the focus.
  if (key.startsWith("Arrow") && !isTyping && !event.target.closest?.(".line")) return;
  if (!KEYS.has(key)) return;
  event.preventDefault();
  KEYS.get(key)();
};

setTheme(store("criprobe-theme"));
document.addEventListener("DOMContentLoaded", () => {
  setTheme(document.documentElement.dataset.theme);
  recall();
  $("filter").addEventListener("input", () => setFilter($("filter").value));
  $("theme").addEventListener("click", nextTheme);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("pause").addEventListener("click", () => setPaused(!isPaused));
  $("bare").addEventListener("toggle", () => later("rows"));
  $("pods").addEventListener("pointermove", () => { lastMove = performance.now(); });
  $("list").addEventListener("pointerleave", () => later("calls"));
  for (const button of document.querySelectorAll("[data-by]")) button.addEventListener("click", () => {
    by = button.dataset.by;
    for (const one of document.querySelectorAll("[data-by]")) one.setAttribute("aria-pressed", String(one === button));
    later("top");
  });
  for (const button of document.querySelectorAll("[data-to]"))
    button.addEventListener("click", () => {
      const to = $(button.dataset.to);
      to.focus({ preventScroll: true });
      to.scrollIntoView();
      requestAnimationFrame(() => to.scrollIntoView());   // rows on the way have got their true height by now
    });
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", recall);
  document.body.classList.toggle("once", IS_ONCE);
  if (IS_ONCE) return takeOnce();
  // A tab that slept, or a network that was away, does not wait for the next try.
  const wake = () => { later("all"); if (!isOpen || Date.now() - heard > STALE) connect(); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });
  addEventListener("online", wake);
  setInterval(() => { watch(); tick(); }, 1_000);
  connect();
});
