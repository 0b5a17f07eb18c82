// The gauges of the tenants: those that are limited first, then those that have used most.
import { clock, short } from "./chart.js";

const MOST = 12;

function add(parent, name, className, text) {
  const child = document.createElement(name);
  if (className) child.className = className;
  if (text !== undefined) child.textContent = text;
  parent.append(child);
  return child;
}

// "42 s" or "3 min"
function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  return seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`;
}

function about(key, now) {
  if (!key.isLimited(now)) return key.budget ? "not limited" : "not limited now";
  const since = `Limited since ${clock(key.since)} (${span(now - key.since)})`;
  if (key.last.kind === "tenant_denied") return `${since}, denied by its plan`;
  return key.until > now ? `${since}, until ${clock(key.until)}` : since;
}

function gauge(list, key, now, choose) {
  const item = add(list, "li", key.isLimited(now) ? "limited" : "");
  item.dataset.tenant = key.name;
  const first = add(item, "div", "line");
  const name = add(first, "button", "", key.name);
  name.type = "button";
  name.title = "Show only this tenant";
  name.addEventListener("click", () => choose(key.name));
  const of = key.budget ?? key.last;
  const [limit, left] = [of["x-ratelimit"] ?? 0, of["x-ratelimit-remaining"] ?? 0];
  add(first, "span", "note", `${short(limit - left)} of ${short(limit)} used, ${of.policy ?? "no policy"}`);
  const bar = add(item, "div", "gauge");
  bar.setAttribute("role", "meter");
  bar.setAttribute("aria-label", `Used by ${key.name}`);
  bar.setAttribute("aria-valuemin", 0);
  bar.setAttribute("aria-valuemax", limit);
  bar.setAttribute("aria-valuenow", limit - left);
  add(bar, "div").style.width = `${Math.round(key.used * 100)}%`;
  const last = add(item, "div", "line");
  add(last, "span", "about note", about(key, now));
  const second = Math.floor(now / 1000) - 2;
  const admitted = key.budget ? `${short(key.admitted.at(second))} admitted, ` : "";
  add(last, "span", "note", `${admitted}${short(key.refused.at(second))} refused per second`);
}

export function drawTenants(list, note, model, choose) {
  const now = model.now;
  const keys = [...model.keys.values()].filter((key) => key.budget || key.isLimited(now));
  const rank = (key) => (key.isLimited(now) ? 2 : 0) + key.used;
  keys.sort((one, other) => rank(other) - rank(one) || (one.name < other.name ? -1 : 1));
  // a focused name keeps the focus
  const focused = list.contains(document.activeElement) && document.activeElement.textContent;
  list.replaceChildren();
  keys.slice(0, MOST).forEach((key) => gauge(list, key, now, choose));
  if (focused) [...list.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  const more = keys.length > MOST ? `${keys.length - MOST} more have used less. ` : "";
  const source = model.hasBudgets
    ? "The gauges show the limiter as it is now, for tenants with a plan of their own and for those that are refused."
    : "This server shows no budgets: the gauges show the last refusal.";
  note.textContent = `${more}${source} Limited since: the first refusal after ten quiet seconds. Until: when a request would be admitted again.`;
  return keys.filter((key) => key.isLimited(now)).length;
}
