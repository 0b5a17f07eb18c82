// The table of the newest events, with filters, a pause and the details of one event.
import { isFailure, isLogin, isRefusal, isSuccess } from "./model.js";

const MOST_ROWS = 200;
const byId = (id) => document.getElementById(id);
const time = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", "");

const NAMES = {
  id: "Number", at: "Time (UTC)", kind: "Kind", tenant: "Tenant", session: "Session", subject: "Identifier (hash)",
  method: "Method", reason: "Reason", policy: "Policy", mode: "Mode", "x-ratelimit": "Limit",
  "x-ratelimit-remaining": "Remaining", "x-ratelimit-reset": "Reset (UTC)", count: "Count",
};

function details(event) {
  const parts = [event.method, event.reason];
  if (event.policy) parts.push(`${event.policy}: ${event["x-ratelimit-remaining"]} of ${event["x-ratelimit"]} left`);
  if (event.mode === "shadow") parts.push("shadow: admitted");
  if (event.session) parts.push(`session ${event.session.slice(0, 8)}…`);
  return parts.filter(Boolean).join(" · ");
}

function kindOf(event) {
  if (isRefusal(event)) return "refusal";
  if (isFailure(event)) return "failure";
  return isSuccess(event) ? "success" : "";
}

export class Table {
  // the number of the first event that is not shown yet
  next = 0;
  isPaused = false;

  constructor(model, redraw) {
    this.model = model;
    for (const id of ["by-tenant", "by-kind", "by-time"]) {
      byId(id).addEventListener("input", () => {
        this.rebuild();
        redraw();
      });
    }
    byId("pause").addEventListener("click", () => {
      this.isPaused = !this.isPaused;
      byId("pause").setAttribute("aria-pressed", this.isPaused);
      byId("pause").textContent = this.isPaused ? "Continue" : "Pause";
      redraw();
    });
    byId("rows").addEventListener("click", (click) => {
      const event = click.target.closest("tr")?.event;
      if (event && event.kind !== "lost") this.open(event);
    });
  }

  get tenant() {
    return byId("by-tenant").value.trim();
  }

  choose(tenant) {
    byId("by-tenant").value = this.tenant === tenant ? "" : tenant;
    this.rebuild();
  }

  // Shows the rows for new filters, even during a pause.
  rebuild() {
    byId("rows").replaceChildren();
    this.next = 0;
    this.draw(true);
  }

  matches(event) {
    if (event.kind === "lost") return true;
    const kind = byId("by-kind").value;
    const isOfKind = { "": true, "~refusals": isRefusal(event), "~logins": isLogin(event) }[kind] ?? event.kind === kind;
    const seconds = Number(byId("by-time").value);
    const isNamed = (event.tenant ?? "").includes(this.tenant) || [event.session, event.subject].includes(this.tenant);
    return isOfKind
      && isNamed
      && (!seconds || event.at > this.model.now - seconds * 1000);
  }

  // Adds rows for the events since the last call, by time. However many there are, it makes at most `MOST_ROWS` of them.
  draw(isForced = false) {
    const { model } = this;
    this.tell();
    if (this.isPaused && !isForced) return;
    const made = [];
    for (let number = model.total - 1; number >= Math.max(this.next, model.dropped) && made.length < MOST_ROWS; number--) {
      const event = model.events[number - model.dropped];
      if (this.matches(event)) made.push(this.row(event));
    }
    this.next = model.total;
    // an event that was counted with others arrives later than younger ones
    made.sort((one, other) => other.event.at - one.event.at);
    const rows = byId("rows");
    let next = rows.rows[0] ?? null;
    for (const row of made) {
      while (next && next.event.at > row.event.at) next = next.nextElementSibling;
      rows.insertBefore(row, next);
    }
    while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
    const seconds = Number(byId("by-time").value);
    if (seconds) {
      while (rows.rows.length && !this.matches(rows.rows[rows.rows.length - 1].event)) rows.deleteRow(-1);
    }
    this.tell();
  }

  tell() {
    const { model } = this;
    const shown = byId("rows").rows.length;
    const waiting = model.total - this.next;
    const kept = model.events.length;
    let text = `${shown === MOST_ROWS ? `The newest ${shown}` : shown} of ${kept} events.`;
    if (kept < model.total) text += ` ${model.total - kept} older ones are not kept here.`;
    if (this.isPaused) text = `Paused: ${waiting} new events. ${text}`;
    if (byId("shown").textContent !== text) byId("shown").textContent = text;
  }

  row(event) {
    const row = document.createElement("tr");
    row.event = event;
    const cell = (text, className) => {
      const td = row.insertCell();
      td.textContent = text ?? "";
      if (className) td.className = className;
      return td;
    };
    if (event.kind === "lost") {
      row.className = "lost";
      cell(`${event.lost} events were overwritten before they could be shown`).colSpan = 5;
      return row;
    }
    row.className = kindOf(event);
    const open = document.createElement("button");
    open.type = "button";
    open.textContent = time(event.at).slice(11);
    cell("").append(open);
    cell(event.kind);
    cell(event.tenant);
    cell(details(event));
    cell(event.count > 1 ? event.count : "", "number");
    return row;
  }

  open(event) {
    byId("details-title").textContent = event.kind;
    const fields = Object.entries(event).flatMap(([name, value]) => {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = NAMES[name] ?? name;
      const isTime = name === "at" || name === "x-ratelimit-reset";
      text.textContent = isTime ? time(name === "at" ? value : value * 1000) : value;
      if (name === "session" || name === "subject") text.append(" ", this.filterButton(value));
      return [term, text];
    });
    byId("fields").replaceChildren(...fields);
    byId("json").textContent = JSON.stringify(event);
    byId("details").showModal();
  }

  // A button that shows only the events of this session or identifier.
  filterButton(value) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Show only these";
    button.addEventListener("click", () => {
      byId("details").close();
      byId("by-tenant").value = value;
      byId("by-tenant").dispatchEvent(new Event("input"));
    });
    return button;
  }
}
