// A login, from the identifier to the way back. It knows where it lies, what its query says, and what the server answers.
// What it has to find again after a reload is in the storage of this tab, and nothing of it is secret.
const here = new URL(".", import.meta.url);
let asked = new URLSearchParams(location.search);
// What says more of the login than who it is for.
const wishes = () => Object.fromEntries(["acr_values", "prompt", "max_age", "claims"].map((name) => [name, asked.get(name)]));
const KEY = `login ${here.pathname}`;

// What a login is bound to: every call repeats it.
const bound = {};
function bind(parameters) {
  asked = new URLSearchParams(parameters);
  for (const name of ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"]) {
    if (asked.has(name)) bound[name] = asked.get(name);
  }
}

const PHONE = { factor: "phone", begin: address, field: "phone_number", type: "tel", autocomplete: "tel",
  ask: "Phone number", note: "In international format, such as +15555550100." };
// Each step takes another factor. What has no `begin` can't be done by this page yet, and is not offered.
const METHODS = {
  password: { factor: "knowledge", label: "Password", begin: password },
  sms: { ...PHONE, label: "Code by text message" },
  whatsapp: { ...PHONE, label: "Code by WhatsApp" },
  email: { factor: "mailbox", label: "Code by e-mail", begin: address, field: "email", type: "email",
    autocomplete: "email", ask: "E-mail address", note: "The one that belongs to your account." },
  passkey: { factor: "key", label: "Passkey" },
  sso: { factor: "federated", label: "Another account of yours" },
};

// What is not told apart here is a wrong request, which the link has led to.
const LINK = "The link that led here does not work. Go back to the application and start again from there.";
const WORDS = {
  invalid_credentials: "The name or the password is wrong.",
  invalid_otp: "The code is wrong or too old.",
  invalid_assertion: "The passkey was not accepted.",
  no_pending_challenge: "That code can’t be used any more. Have a new one sent.",
  method_not_allowed: "That way can’t be used for this step. Choose another.",
  unsupported_method: "That way can’t be used here. Choose another.",
  session_expired: "This login has ended, for it took too long.",
  session_failed: "This login has ended, for too many tries failed.",
  invalid_session: "This browser knows nothing of this login any more.",
  login_required: "You have to log in first.",
  access_denied: "Nobody can log in here at the moment. The operator of the application has to set it right.",
  origin_not_allowed: "Your browser does not let this page log you in. Open it in a window of its own.",
  slow_down: "That was a little fast.",
  too_many_attempts: "That was tried too often.",
  rate_limit_exceeded: "Too many people are asking right now.",
  temporarily_unavailable: "That can’t be done right now. Try again in a moment.",
  internal: "Something went wrong in this page. Load it again.",
  unreachable: "The server can’t be reached. Check your connection and try again.",
};
const ENDED = ["session_expired", "session_failed", "invalid_session", "login_required"];

const at = (id) => document.getElementById(id);
const forms = [...document.forms];
let client = "the application";
let signedIn = "";
let login = load();
let method = null; // the one at work
let retry = null; // what the button of `again` does
let busy = false;
let detours = 0; // what was done unasked since somebody asked for something

// ---- what survives a reload

// `until`: when something may be tried again, by its name
function fresh() {
  return { query: location.search, before: 0, id: null, identifier: "", methods: [], required: 0, proved: [], refused: [], code: null, until: {} };
}

function load() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY));
    return kept?.query === location.search ? { ...fresh(), ...kept } : fresh();
  } catch {
    return fresh();
  }
}

function keep() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(login));
  } catch { /* then a reload starts again */ }
}

function forget(identifier = "") {
  login = { ...fresh(), identifier };
  try {
    sessionStorage.removeItem(KEY);
  } catch { /* nothing was kept */ }
}

// ---- the server

async function call(path, body) {
  const headers = { accept: "application/json" };
  if (body) headers["content-type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(new URL(path, here), {
      method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body),
      redirect: "error", cache: "no-store", signal: AbortSignal.timeout(30_000),
    });
    answer = await response.json();
  } catch { /* no answer, or not one of ours */ }
  if (response?.ok && answer) return answer;
  const code = answer?.error ?? { 429: "rate_limit_exceeded", 503: "temporarily_unavailable" }[response?.status];
  throw { code: code ?? "unreachable", wait: Number(answer?.retry_after ?? response?.headers.get("retry-after")) || 0 };
}

const step = (path, more) => call(path, { ...bound, session_id: login.id, ...more });

// ---- what is shown

// `until` names what is waited for: with that, the words are over.
function say(words, until = "") {
  at("message").textContent = words;
  at("message").dataset.until = until;
}

function show(name, focus) {
  for (const form of forms) form.hidden = form.id !== name;
  const isStep = ["choose", "password", "address", "code"].includes(name);
  at("restart").hidden = !isStep;
  const more = open().length > 1;
  at("other").hidden = name === "choose" || !(isStep && more || name === "code");
  at("other").textContent = more ? "Choose another way" : "Use another address";
  const done = login.before + login.proved.length;
  at("step").textContent = isStep && login.required > 1 ? `Step ${done + 1} of ${login.required}` : "";
  at("progress").hidden = !isStep || login.required < 2;
  at("progress").replaceChildren(...Array.from({ length: login.required }, (_, place) => {
    const part = document.createElement("li");
    part.className = place <= done ? "done" : "";
    return part;
  }));
  focus?.focus();
}

function span(seconds) {
  if (seconds < 100) return `${seconds} s`;
  return seconds < 5400 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3600)} h`;
}

// A button waits until the time of this name; it says for how long, and asks nobody.
const ticking = new Map();
function hold(button, name) {
  const text = (button.dataset.text ??= button.textContent);
  clearInterval(ticking.get(button));
  const tick = () => {
    const left = Math.ceil(((login.until[name] ?? 0) - Date.now()) / 1000);
    button.disabled = left > 0;
    button.textContent = left > 0 ? `${text} (in ${span(left)})` : text;
    if (left > 0) return;
    clearInterval(ticking.get(button));
    if (at("message").dataset.until === name) say("");
  };
  ticking.set(button, setInterval(tick, 500));
  tick();
}

function wait(name, seconds) {
  login.until[name] = Date.now() + seconds * 1000;
  if (login.id) keep();
}

// ---- the screens

function who() {
  say("");
  at("identifier").value = login.identifier;
  show("who", at("identifier"));
}

// Nothing but one way on.
function stuck(words, label, action) {
  say(words);
  retry = action;
  const button = at("again").querySelector("button");
  button.dataset.text = label;
  login.until.again = 0;
  hold(button, "again");
  show("again", button);
}

// Who gets the answer, and what they ask for.
function purpose({ client_name: to, redirect, scopes }) {
  const place = { site: redirect.host, loopback: "a program on this device", app: "an app on this device" }[redirect.kind];
  return `${to} (${place}) asks for: ${scopes.join(", ")}.`;
}

// Somebody is signed in already, whose steps count here.
function going(told) {
  say("");
  const { signed_in: name, client_name: to } = told;
  signedIn = name;
  at("whither").textContent = purpose(told);
  const button = submitOf("going");
  delete button.dataset.text;
  button.textContent = `Continue as ${name} to ${to}`;
  show("going", button);
}

function open() {
  const used = login.proved.map((name) => METHODS[name]?.factor);
  return login.methods.filter((name) =>
    METHODS[name]?.begin && !used.includes(METHODS[name].factor) && !login.refused.includes(name));
}

function choose(words = "") {
  const names = open();
  method = null;
  if (names.length === 0) return stuck("No way to log in is left that this page can offer.", "Start again", restart);
  if (names.length === 1) return METHODS[names[0]].begin(names[0], words);
  say(words);
  at("ways").replaceChildren(...names.map((name) => {
    const button = document.createElement("button");
    button.type = "button";
    button.value = name;
    button.textContent = METHODS[name].label;
    button.addEventListener("click", () => METHODS[name].begin(name));
    return button;
  }));
  show("choose", at("ways").firstChild);
}

function password(name, words = "") {
  method = name;
  say(words);
  at("username").value = login.identifier;
  at("secret").value = "";
  at("secret").type = "password";
  at("reveal").checked = false;
  hold(submitOf("password"), name);
  show("password", at("secret"));
}

function address(name, words = "") {
  const { field, type, autocomplete, ask, note } = METHODS[name];
  const to = at("to");
  if (method !== name || !to.value) to.value = (type === "email" ? /.@./ : /^\+/).test(login.identifier) ? login.identifier : "";
  method = name;
  say(words);
  Object.assign(to, { type, autocomplete, name: field });
  at("address-label").textContent = ask;
  at("address-note").textContent = note;
  at("have").hidden = login.code?.method !== name;
  hold(submitOf("address"), name);
  show("address", to);
}

function code() {
  const { to, digits } = login.code;
  method = login.code.method;
  say("");
  at("sent").textContent = `If ${to} belongs to your account, a code of ${digits} digits is on its way there.`;
  at("otp").value = "";
  hold(submitOf("code"), "otp");
  hold(at("resend"), method);
  show("code", at("otp"));
}

function restart() {
  forget(login.identifier);
  who();
}

// ---- the steps

function began(answer, identifier) {
  forget(identifier);
  const { session_id: id, available_methods: methods, required_steps: required, next_step: next } = answer;
  Object.assign(login, { id, methods, required, before: next === null ? required : next - 1 });
  keep();
  if (next === null) return finish;
  choose();
}

async function send(to) {
  const answer = await step("authenticate", { method, [METHODS[method].field]: to });
  login.code = { method, to, digits: answer.challenge.digits, tries: 0 };
  wait(method, answer.challenge.resend_in);
  code();
}

async function proved(answer) {
  login.proved.push(method);
  Object.assign(login, { refused: [], code: null, required: answer.completed_steps + answer.remaining_steps });
  keep();
  if (answer.remaining_steps === 0) return finish;
  choose();
}

async function finish() {
  show(null);
  at("step").textContent = `Taking you back to ${client} …`;
  await step("complete");
  // what was kept is done with: whoever comes back here starts anew
  forget();
  location.replace(new URL(`../authorize${location.search}`, here));
}

// Where a login stands that was begun before the page was loaded.
async function resume() {
  const answer = await call(`status?session_id=${encodeURIComponent(login.id)}`);
  if (answer.status === "expired" || answer.status === "failed") throw { code: `session_${answer.status}`, wait: 0 };
  login.required = answer.completed_steps + answer.remaining_steps;
  if (answer.next_step === null) return finish;
  if (login.code) code();
  else choose();
}

async function begin() {
  show(null);
  const told = await call(`start${location.search}`);
  // what was pushed stands in no URL
  bind(told.parameters ?? location.search);
  client = told.client_name;
  at("client").textContent = `to ${client}`;
  document.title = `Log in to ${client}`;
  // who has to agree reads to what, before they say who they are
  const agrees = told.redirect.kind !== "site" || asked.get("prompt")?.split(" ").includes("consent");
  at("asks").textContent = agrees ? purpose(told) : "";
  if (login.id) return resume;
  login.identifier ||= asked.get("login_hint") ?? "";
  if (told.signed_in) return going(told);
  if (told.available_methods.length === 0) throw { code: "access_denied", wait: 0 };
  who();
}

// ---- what goes wrong

const submitOf = (name) => at(name).querySelector("button:not([type])");

// `place` is the form that was sent, or null; `again` does the same once more.
function failed({ code: name, wait: seconds }, place, again) {
  let words = WORDS[name] ?? `${LINK} (${name})`;
  if (seconds > 1) words += ` You can try again in ${span(seconds)}.`;
  if (ENDED.includes(name)) return stuck(words, "Start again", restart);
  const elsewhere = { no_step_remaining: finish, steps_remaining: resume }[name];
  if (elsewhere && detours++ === 0) return run(null, elsewhere);
  if (name.endsWith("method_not_allowed") || name === "unsupported_method") {
    if (method) login.refused.push(method);
    return choose(words);
  }
  if (name === "no_pending_challenge" && login.code) {
    login.code = null;
    keep();
    return address(method, words);
  }
  if (!place || place === "again") {
    stuck(words, "Try again", again);
    place = "again";
  }
  const what = { who: "start", code: "otp", again: "again" }[place] ?? method;
  say(words, seconds ? what : "");
  if (seconds) {
    wait(what, seconds);
    hold(place === "resend" ? at("resend") : submitOf(place), what);
  }
  if (name === "invalid_request") {
    if (place === "who") say("That can’t be the name of an account.");
    if (place === "address") say(`That can’t be read. ${METHODS[method].note}`);
  }
  if (name === "invalid_otp" && login.code) {
    login.code.tries += 1;
    keep();
    if (login.code.tries > 1) say(`${words} You tried ${login.code.tries} times; soon a new code is needed.`);
  }
  ({ who: at("identifier"), password: at("secret"), address: at("to"), code: at("otp") })[place]?.focus();
}

// One thing at a time; what is asked for meanwhile is not done. An action may give the one that follows it.
async function run(place, action) {
  if (busy) return;
  busy = true;
  if (place) detours = 0;
  document.body.setAttribute("aria-busy", "true");
  say("");
  let next, failure;
  try {
    next = await action();
  } catch (thrown) {
    failure = thrown?.code ? thrown : { code: "internal", wait: 0 };
  }
  busy = false;
  document.body.removeAttribute("aria-busy");
  if (next) run(null, next);
  if (failure) failed(failure, place, () => run(null, action));
}

const SUBMIT = {
  async who() {
    login.identifier = at("identifier").value.trim();
    const { identifier } = login;
    return began(await call("start", { ...bound, ...wishes(), identifier }), identifier);
  },
  going: async () => began(await call("start", { ...bound, ...wishes() }), signedIn),
  async password() {
    const typed = at("secret").value;
    at("secret").value = "";
    return proved(await step("authenticate", { method, username: login.identifier, password: typed }));
  },
  address: () => send(at("to").value.trim()),
  async code() {
    const otp = at("otp").value.replace(/[\s-]/g, "");
    at("otp").value = "";
    return proved(await step("verify-otp", { otp }));
  },
};

for (const form of forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.id === "again") return retry?.();
    run(form.id, SUBMIT[form.id]);
  });
}
at("resend").addEventListener("click", () => run("resend", () => send(login.code.to)));
at("have").addEventListener("click", () => busy || code());
at("other").addEventListener("click", () => busy || choose());
at("another").addEventListener("click", () => busy || who());
at("restart").addEventListener("click", () => busy || restart());
at("reveal").addEventListener("change", (event) => { at("secret").type = event.target.checked ? "text" : "password"; });

run(null, begin);
