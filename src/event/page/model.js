// Everything that the page knows. All of it is bounded, and an event costs the same however many there were.
export const MOST_EVENTS = 5000;
const MOST_KEYS = 200;
const SLOTS = 256;
// a tenant that is refused again within this time is still limited
const PAUSE = 10000;

const REFUSALS = new Set(["rate_limited", "quota_impossible", "tenant_denied"]);
const FAILURES = new Set(["authn_login_fail", "authn_login_fail_max", "authn_login_lock"]);
const SUCCESSES = new Set(["authn_login_success", "authn_token_created"]);

export const isRefusal = (event) => REFUSALS.has(event.kind) && event.mode === "enforced";
export const isLogin = (event) => event.kind.startsWith("authn_");
export const isSuccess = (event) => SUCCESSES.has(event.kind);
export const isFailure = (event) => FAILURES.has(event.kind);

// Counts per second, of the newest seconds.
export class Series {
  seconds = new Float64Array(SLOTS);
  counts = new Float64Array(SLOTS);

  add(second, count) {
    const slot = second % SLOTS;
    if (this.seconds[slot] > second) return;
    if (this.seconds[slot] < second) this.counts[slot] = 0;
    this.seconds[slot] = second;
    this.counts[slot] += count;
  }

  at(second) {
    const slot = second % SLOTS;
    return this.seconds[slot] === second ? this.counts[slot] : 0;
  }

  // Adds a count that was collected between two times, in milliseconds.
  spread(from, to, count) {
    if (!(to > from)) return;
    for (let second = Math.max(Math.floor(from / 1000), Math.floor(to / 1000) - SLOTS + 1); second * 1000 < to; second++) {
      const share = Math.min(to, second * 1000 + 1000) - Math.max(from, second * 1000);
      this.add(second, (count * share) / (to - from));
    }
  }
}

// Requests of a tenant, or of all.
class Requests {
  admitted = new Series();
  refused = new Series();
  // since when admitted requests are known, and how many there were at the last look
  knownSince = null;
  seen = null;

  look(at, admitted) {
    if (this.seen && at > this.seen.at && admitted >= this.seen.admitted) {
      this.admitted.spread(this.seen.at, at, admitted - this.seen.admitted);
    }
    this.knownSince ??= at;
    this.seen = { at, admitted };
  }
}

class Key extends Requests {
  budget = null;
  since = 0;
  until = 0;
  refusedAt = 0;

  constructor(name) {
    super();
    this.name = name;
  }

  refuse(event) {
    if (event.at > Math.max(this.refusedAt, this.until) + PAUSE) this.since = event.at;
    this.refusedAt = Math.max(this.refusedAt, event.at);
    const reset = event["x-ratelimit-reset"];
    // none if no retry can succeed
    if (reset !== undefined) this.until = Math.max(this.until, reset * 1000);
    this.last = event;
  }

  isLimited(now) {
    return this.refusedAt > 0 && (now < this.until || now - this.refusedAt < 3000);
  }

  // the part of the budget that is used, or of the quota of the last refusal
  get used() {
    const of = this.budget ?? this.last;
    const limit = of?.["x-ratelimit"];
    return limit > 0 ? 1 - of["x-ratelimit-remaining"] / limit : 0;
  }
}

export class Model {
  events = [];
  dropped = 0;
  total = 0;
  lost = 0;
  keys = new Map();
  kinds = new Set();
  all = new Requests();
  succeeded = new Series();
  failed = new Series();
  logins = { succeeded: 0, failed: 0 };
  hasBudgets = false;
  isOfAll = false;
  // what the clock of the server is ahead of this one
  ahead = null;

  get now() {
    return Date.now() + (this.ahead ?? 0);
  }

  add(event) {
    this.events.push(event);
    this.total++;
    if (this.events.length >= 2 * MOST_EVENTS) {
      this.events = this.events.slice(MOST_EVENTS);
      this.dropped += MOST_EVENTS;
    }
    if (event.kind === "lost") {
      event.at = this.now;
      this.lost += event.lost;
      return;
    }
    this.kinds.add(event.kind);
    this.ahead = Math.max(this.ahead ?? -Infinity, event.at - Date.now());
    const second = Math.floor(event.at / 1000);
    if (isRefusal(event)) {
      this.all.refused.add(second, event.count);
      if (event.tenant) {
        const key = this.key(event.tenant);
        key.refused.add(second, event.count);
        key.refuse(event);
      }
    }
    if (event.kind === "authn_login_success") {
      this.succeeded.add(second, event.count);
      this.logins.succeeded += event.count;
    } else if (isFailure(event)) {
      this.failed.add(second, event.count);
      this.logins.failed += event.count;
    }
  }

  // Takes an answer of `usage`.
  look(usage) {
    this.hasBudgets = true;
    this.ahead = usage.at - Date.now();
    this.isOfAll = usage.admitted !== undefined;
    if (this.isOfAll) this.all.look(usage.at, usage.admitted);
    for (const budget of usage.tenants) {
      const key = this.key(budget.tenant);
      key.budget = budget;
      key.look(usage.at, budget.admitted);
      if (!this.isOfAll) this.all.look(usage.at, budget.admitted);
    }
  }

  key(name) {
    let key = this.keys.get(name);
    // the order is that of the last use
    if (key) this.keys.delete(name);
    else key = new Key(name);
    this.keys.set(name, key);
    if (this.keys.size > MOST_KEYS) this.keys.delete(this.keys.keys().next().value);
    return key;
  }

  // Returns the names of tenants that were refused a moment ago.
  limitedNames() {
    const now = this.now;
    return [...this.keys.values()].filter((key) => key.isLimited(now)).map((key) => key.name).slice(-20);
  }
}
