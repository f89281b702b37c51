// Small comforts over pages that work without them: live parts, keys, the theme.

const body = document.body;
const root = body.dataset.root ?? "";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Distances of times grow by themselves.
const steps = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function distance(seconds) {
  const size = Math.abs(seconds);
  if (size < 1) return "now";
  const [unit, length] = steps.find(([, each]) => size >= each);
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}
function tellTimes(within = document) {
  for (const each of all("time:not([data-fixed])", within)) {
    const text = distance((Date.parse(each.dateTime) - Date.now()) / 1000);
    if (each.textContent !== text) each.textContent = text;
  }
}
setInterval(tellTimes, 1000);

// Parts of the page that the server says have changed.
const pulse = document.querySelector("[data-pulse]");
function say(words, isLost) {
  if (!pulse) return;
  pulse.hidden = false;
  pulse.classList.toggle("lost", isLost);
  pulse.querySelector("[data-pulse-words]").textContent = words;
}
function replace(id, html) {
  const place = document.getElementById(id);
  // Somebody types or chooses there: leave it until they are done.
  if (!place || place.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return;
  const focus = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const row = place.querySelector("tr.here a[data-row]")?.getAttribute("href");
  place.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  tellTimes(place);
  if (focus) all("a[href]", place).find((each) => each.getAttribute("href") === focus)?.focus();
  if (row) all("a[data-row]", place).find((each) => each.getAttribute("href") === row)?.closest("tr").classList.add("here");
}
if (body.dataset.live) {
  const source = new EventSource(body.dataset.live);
  source.addEventListener("open", () => say("live", false));
  source.addEventListener("error", () => say("not connected", true));
  source.addEventListener("parts", (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) replace(id, html);
    body.dataset.updates = Number(body.dataset.updates ?? 0) + 1;
  });
  source.addEventListener("end", () => { source.close(); say("ended", true); });
  addEventListener("pagehide", () => source.close());
}

// Wishes that take something away are asked for twice.
document.addEventListener("submit", (event) => {
  const words = event.target.dataset.confirm;
  if (words && !confirm(words)) event.preventDefault();
});

// Light or dark, kept in a cookie by the server.
const toggle = document.querySelector("[data-theme-toggle]");
function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches;
}
function nameToggle() {
  if (!toggle) return;
  toggle.value = isDark() ? "light" : "dark";
  toggle.querySelector("span").textContent = isDark() ? "Light" : "Dark";
}
toggle?.addEventListener("click", (event) => {
  event.preventDefault();
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  nameToggle();
  fetch(toggle.form.action, { method: "POST", body: new URLSearchParams({ theme }), redirect: "manual" });
});
nameToggle();

// Keys.
const keys = document.getElementById("keys");
const help = document.querySelector("[data-help]");
if (help) { help.hidden = false; help.addEventListener("click", () => keys.showModal()); }
const pages = { o: "/", s: "/schedules", j: "/jobs", q: "/queues", w: "/workers", h: "/health" };
let isGoing = false;
function step(by) {
  const rows = all("table.rows tbody tr");
  if (!rows.length) return;
  const here = rows.findIndex((each) => each.classList.contains("here"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by))];
  rows[here]?.classList.remove("here");
  next.classList.add("here");
  next.querySelector("a[data-row]")?.focus();
  next.scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (keys?.open) return;
  if (isGoing) {
    isGoing = false;
    if (event.key in pages) location.assign(root + pages[event.key]);
    return;
  }
  const acts = {
    "/": () => document.querySelector("[data-search]")?.focus(),
    "?": () => keys?.showModal(),
    j: () => step(1),
    k: () => step(-1),
    t: () => toggle?.click(),
    g: () => { isGoing = true; },
  };
  if (event.key in acts) { event.preventDefault(); acts[event.key](); }
});
body.dataset.ready = "yes";
