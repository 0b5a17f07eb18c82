// The login page, from the user's name to the redirect back. Its input is its own URL and the responses of the server. It keeps
// the progress of a login in the sessionStorage of the tab, so that it survives a reload. Nothing stored there is secret.
const here = new URL(".", import.meta.url);
let asked = new URLSearchParams(location.search);
// Parameters of the request that only the start of a login takes.
const optionalParameters = () => ({
  ...Object.fromEntries(["acr_values", "prompt", "max_age", "claims", "return_to", "steps"].map((name) => [name, asked.get(name)])),
  remember: at("remember").checked,
});
const KEY = `login ${here.pathname}`;

// The parameters that every call of a login repeats.
const bound = {};
function bind(parameters) {
  asked = new URLSearchParams(parameters);
  for (const name of ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"]) {
    if (asked.has(name)) bound[name] = asked.get(name);
  }
}

const PHONE = { factor: "phone", begin: address, field: "phone_number", type: "tel", autocomplete: "tel",
  ask: "Phone number", note: "In international format, such as +15555550100." };
// Each step needs another factor. Methods without `begin` are not offered, because this page does not support them yet.
const METHODS = {
  password: { factor: "knowledge", label: "Password", begin: password },
  sms: { ...PHONE, label: "Code by text message" },
  whatsapp: { ...PHONE, label: "Code by WhatsApp" },
  email: { factor: "mailbox", label: "Code by e-mail", begin: address, field: "email", type: "email",
    autocomplete: "email", ask: "E-mail address", note: "The address of your account." },
  passkey: { factor: "key", label: "Passkey" },
  sso: { factor: "federated", label: "Another account" },
};

// Every other error means that the link was wrong.
const LINK = "This link does not work. Go back to the application and try again.";
const WORDS = {
  invalid_credentials: "The name or the password is wrong.",
  invalid_otp: "The code is wrong or has expired.",
  invalid_assertion: "The passkey was not accepted.",
  no_pending_challenge: "This code can no longer be used. Request a new one.",
  method_not_allowed: "This method cannot be used for this step. Try another method.",
  unsupported_method: "This method is not available. Try another method.",
  session_expired: "Your sign-in timed out. Please start again.",
  session_failed: "There were too many failed attempts. Please start again.",
  invalid_session: "Your sign-in could not be continued in this browser. Please start again.",
  login_required: "Please sign in first.",
  access_denied: "Sign-in is currently unavailable. Please contact your administrator.",
  origin_not_allowed: "Your browser blocked the sign-in. Open this page in its own window.",
  slow_down: "That was too fast.",
  too_many_attempts: "There were too many attempts.",
  rate_limit_exceeded: "The service is busy right now.",
  temporarily_unavailable: "Sign-in is temporarily unavailable. Please try again.",
  internal: "Something went wrong on this page. Please reload it.",
  unreachable: "The server cannot be reached. Check your connection and try again.",
};
const ENDED = ["session_expired", "session_failed", "invalid_session", "login_required"];

const at = (id) => document.getElementById(id);
const forms = [...document.forms];
let client = "the application";
let signedIn = "";
let login = load();
let onward = `../authorize${location.search}`; // where a completed login goes on
let method = null; // the current one
let retry = null; // the action of the button in `again`
let busy = false;
let detours = 0; // calls that followed from the last action of the user

// ---- what survives a reload

// `until` maps an action to the time at which it may be tried again.
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
  } catch { /* a reload starts again */ }
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
  } catch { /* no answer, or not from our server */ }
  if (response?.ok && answer) return answer;
  const code = answer?.error ?? { 429: "rate_limit_exceeded", 503: "temporarily_unavailable" }[response?.status];
  throw { code: code ?? "unreachable", wait: Number(answer?.retry_after ?? response?.headers.get("retry-after")) || 0 };
}

const step = (path, more) => call(path, { ...bound, session_id: login.id, ...more });

// ---- messages and forms

// The message disappears when the wait named by `until` is over.
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
  at("other").textContent = more ? "Try another method" : "Use another address";
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

// Disables a button until the wait of this name is over. The button shows the remaining time.
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

function who(words = "") {
  say(words);
  at("identifier").value = login.identifier;
  show("who", at("identifier"));
}

// Shows a message and one button.
function stuck(words, label, action) {
  say(words);
  retry = action;
  const button = at("again").querySelector("button");
  button.dataset.text = label;
  login.until.again = 0;
  hold(button, "again");
  show("again", button);
}

// Names the client and what it asks for.
function purpose({ client_name: to, redirect, scopes, claims = [] }) {
  const place = { site: redirect.host, loopback: "a program on this device", app: "an app on this device" }[redirect.kind];
  return `${to} (${place}) asks for: ${[...scopes, ...claims].join(", ")}.`;
}

// The user is already signed in.
function going(told) {
  say("");
  const { signed_in: name, client_name: to } = told;
  signedIn = name;
  at("whither").textContent = told.continue_to ? "" : purpose(told);
  const button = submitOf("going");
  delete button.dataset.text;
  button.textContent = `Continue as ${name}${told.continue_to ? "" : ` to ${to}`}`;
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
  if (names.length === 0) return stuck("No other sign-in method is available.", "Start again", restart);
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
  at("sent").textContent = `If ${to} belongs to your account, we have sent a code of ${digits} digits to it.`;
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
  at("step").textContent = client ? `Taking you back to ${client} …` : "Signing you in …";
  await step("complete");
  forget();
  location.replace(new URL(onward, here));
}

// Continues a login that was started before the page was loaded.
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
  // the parameters of a pushed request are in no URL
  bind(told.parameters ?? location.search);
  // a sign-in to the site itself has no client and asks for no consent
  onward = told.continue_to ?? onward;
  client = told.continue_to ? "" : told.client_name;
  at("client").textContent = client && `to ${client}`;
  document.title = client ? `Sign in to ${client}` : "Sign in";
  at("stay").hidden = !told.remember_available;
  // users read what they agree to before they enter their name
  const prompts = asked.get("prompt")?.split(" ") ?? [];
  const agrees = told.redirect.kind !== "site" || prompts.includes("consent") || prompts.includes("select_account");
  at("asks").textContent = agrees ? purpose(told) : "";
  if (login.id) return resume;
  login.identifier ||= asked.get("login_hint") ?? "";
  if (told.signed_in) return going(told);
  if (told.available_methods.length === 0) throw { code: "access_denied", wait: 0 };
  who();
}

// ---- errors

const submitOf = (name) => at(name).querySelector("button:not([type])");

// `place` is the form that was sent, or null. `again` repeats the action.
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
    if (place === "who") say("This is not a valid user name, e-mail address or phone number.");
    if (place === "address") say(`This address is not valid. ${METHODS[method].note}`);
  }
  if (name === "invalid_otp" && login.code) {
    login.code.tries += 1;
    keep();
    if (login.code.tries > 1) say(`${words} You have tried ${login.code.tries} times. After five tries you need a new code.`);
  }
  ({ who: at("identifier"), password: at("secret"), address: at("to"), code: at("otp") })[place]?.focus();
}

// Runs one action at a time and ignores others meanwhile. An action can return the next one.
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
    return began(await call("start", { ...bound, ...optionalParameters(), identifier }), identifier);
  },
  async going() {
    const answer = await call("start", { ...bound, ...optionalParameters() });
    // no step of the session was carried over
    if (answer.next_step === 1) return () => who("Your session has ended. Please sign in again.");
    return began(answer, signedIn);
  },
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
