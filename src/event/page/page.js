// Shows who is limited, and what happens, as it happens.
import { Chart, short } from "./chart.js";
import { problemWith, watchBudgets, watchEvents } from "./connection.js";
import { Model } from "./model.js";
import { Table } from "./table.js";
import { drawTenants } from "./tenants.js";

const byId = (id) => document.getElementById(id);
const requests = new Chart(byId("requests"), byId("requests-at"), ["admitted", "refused"]);
const logins = new Chart(byId("logins"), byId("logins-at"), ["succeeded", "failed"]);
let model = new Model();
const table = new Table(model, schedule);
let watch = null;
let isScheduled = false;

function say(text, className = "") {
  byId("state").textContent = text;
  byId("state").className = className;
}

// Draws in the next frame, once for all that happens until then.
function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    draw();
  });
}

function draw() {
  const now = model.now;
  const limited = drawTenants(byId("tenants"), byId("tenants-note"), model, (name) => {
    table.choose(name);
    schedule();
  });
  byId("limited").textContent = limited;
  byId("limited").parentElement.classList.toggle("wrong", limited > 0);
  byId("limited-note").textContent = limited === 1 ? "tenant or address" : "tenants or addresses";
  // a tenant that is chosen by its whole name has the chart
  const chosen = model.keys.get(table.tenant);
  const shown = chosen ?? model.all;
  byId("whose").textContent = chosen ? `of ${chosen.name}` : "";
  const rates = requests.draw(now, shown.admitted, shown.refused, shown.knownSince);
  if (rates) {
    byId("admitted").textContent = shown.knownSince === null ? "–" : short(rates[0]);
    byId("refused").textContent = short(rates[1]);
  }
  byId("requests-note").textContent = shown.knownSince === null
    ? "Refused: events of this log. This server does not report admitted requests."
    : "Admitted: requests that the limiter has charged, counted since this page was opened. Refused: events of this log.";
  logins.draw(now, model.succeeded, model.failed, 0);
  byId("succeeded").textContent = model.logins.succeeded;
  byId("logins-note").textContent = `${model.logins.failed} steps failed`;
  offerNames();
  table.draw();
}

// Adds new kinds and tenants to the filters.
function offerNames() {
  const [kinds, names] = [byId("by-kind"), byId("names")];
  if (kinds.options.length - 3 !== model.kinds.size) {
    const known = new Set(Array.from(kinds.options, (option) => option.value));
    for (const kind of [...model.kinds].sort()) if (!known.has(kind)) kinds.add(new Option(kind, kind));
  }
  if (names.children.length !== model.keys.size) {
    names.replaceChildren(...[...model.keys.keys()].sort().map((name) => new Option(name, name)));
  }
}

function run(headers) {
  watch?.abort();
  watch = new AbortController();
  model = table.model = new Model();
  table.rebuild();
  byId("board").hidden = false;
  const { signal } = watch;
  const own = model;
  watchEvents(headers, signal, say, (name, event) => {
    own.add(name === "lost" ? { kind: "lost", ...event } : event);
    schedule();
  });
  if (document.body.dataset.budgets === "shown") watchBudgets(headers, signal, () => (own.isOfAll ? own.limitedNames() : []), (usage) => {
    own.look(usage);
    schedule();
  });
  schedule();
}

byId("form").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const [header, key] = [byId("header").value.trim(), byId("key").value];
  const wrong = problemWith(header, key);
  if (wrong) {
    watch?.abort();
    say(wrong, "wrong");
  } else {
    run({ [header]: key });
  }
});

// the time goes on without events
setInterval(() => {
  if (!document.hidden && !byId("board").hidden) schedule();
}, 1000);
addEventListener("resize", schedule);

if (document.body.dataset.key === "none") {
  byId("form").hidden = true;
  run({});
}
