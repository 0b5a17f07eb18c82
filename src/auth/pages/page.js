// The login page, from the user's name to the redirect back. Its input is its own URL and the responses of the server. It keeps
// the progress of a login in the sessionStorage of the tab, so that it survives a reload. Nothing stored there is secret.
const here = new URL(".", import.meta.url);
const KEY = `login ${here.pathname}`;
// Set by the account page while its user confirms a change here.
const ACCOUNT = new URL("../account/", here);
const CHANGE = `account ${ACCOUNT.pathname}`;
const at = (id) => document.getElementById(id);
const forms = [...document.forms];

// How a sign-in at another provider ended. The browser then comes back to this page.
const [, returned, why] = /^#sso=(\w+)(?:&reason=(\w+))?$/.exec(location.hash) ?? [];
let login = load();
history.replaceState(null, "", location.pathname + (returned && login.id ? login.query : location.search));
let asked = new URLSearchParams(location.search);
// Parameters of the request that only the start of a login takes.
const optionalParameters = () => ({
  ...Object.fromEntries(["acr_values", "prompt", "max_age", "claims", "return_to", "steps"].map((name) => [name, asked.get(name)])),
  remember: at("remember").checked,
});

// The parameters that every call of a login repeats.
const bound = {};
function bind(parameters) {
  asked = new URLSearchParams(parameters);
  for (const name of ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"]) {
    if (asked.has(name)) bound[name] = asked.get(name);
  }
}

const PHONE = { begin: address, field: "phone_number", type: "tel", autocomplete: "tel",
  ask: "Phone number", note: "In international format, such as +15555550100." };
const METHODS = {
  password: { label: "Password", begin: password },
  passkey: { label: "Passkey", begin: key },
  sso: { label: "Another account" },
  sms: { ...PHONE, label: "Code by text message" },
  whatsapp: { ...PHONE, label: "Code by WhatsApp" },
  email: { label: "Code by e-mail", begin: address, field: "email", type: "email",
    autocomplete: "email", ask: "E-mail address", note: "The address of your account." },
  totp: { label: "Authenticator app", begin: typed, inputMode: "numeric", autocomplete: "one-time-code",
    note: "Enter the code that your authenticator app shows." },
  recovery_code: { label: "Recovery code", begin: typed, inputMode: "text", autocomplete: "off",
    note: "Enter one of the recovery codes that you saved. Each code works once." },
};
const hasPasskeys = Boolean(globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON);
// What users who have only one factor can set up to prove the second step.
const NEW = {
  passkey: { form: "newkey", label: "Set up a passkey", begin: newKey, act: () => { newKey(); run("newkey", SUBMIT.newkey); } },
  totp: { form: "app", label: "Set up an authenticator app", act: () => run("choose", newApp) },
};

// Every other error means that the link was wrong.
const LINK = "This link does not work. Go back to the application and try again.";
const WORDS = {
  invalid_credentials: "The name or the password is wrong.",
  invalid_otp: "The code is wrong or has expired.",
  invalid_assertion: "The passkey was not accepted.",
  no_passkey: "No passkey was used. Try again, or sign in another way.",
  no_new_passkey: "No passkey was set up. Please try again.",
  late_passkey: "That took too long. Please try again.",
  no_pending_challenge: "This code can no longer be used. Request a new one.",
  method_not_allowed: "This method cannot be used for this step. Try another method.",
  unsupported_method: "This method is not available. Try another method.",
  sso_failed: "Signing in there did not work. Try again, or sign in another way.",
  provider_unavailable: "That provider cannot be reached right now. Try again later, or sign in another way.",
  session_expired: "Your sign-in timed out. Please start again.",
  session_failed: "There were too many failed attempts. Please start again.",
  invalid_session: "Your sign-in could not be continued in this browser. Please start again.",
  login_required: "Please sign in first.",
  fresh_login_required: "Please sign in again, so that you can set up a second step.",
  late_setup: "That took too long. Please start again.",
  step_required: "Your session has ended. Please sign in again.",
  access_denied: "Sign-in is currently unavailable. Please contact your administrator.",
  origin_not_allowed: "Your browser blocked the sign-in. Open this page in its own window.",
  slow_down: "That was too fast.",
  too_many_attempts: "There were too many attempts.",
  rate_limit_exceeded: "The service is busy right now.",
  temporarily_unavailable: "Sign-in is temporarily unavailable. Please try again.",
  internal: "Something went wrong on this page. Please reload it.",
  unreachable: "The server cannot be reached. Check your connection and try again.",
};
const RETURNED = {
  denied: "The sign-in at the other provider was cancelled. Try again, or sign in another way.",
  failed: WORDS.sso_failed,
  stale: "That provider did not ask you to sign in again, which is needed here. Sign in another way first.",
  expired: "That took too long. Please try again.",
  unavailable: WORDS.provider_unavailable,
};

// Says how a sign-in at another provider ended. `canConnect` tells whether the user has an account page here.
function outcome(canConnect) {
  const connect = canConnect
    ? "Sign in another way first, then connect that provider on your account page."
    : "Sign in another way, or contact your administrator.";
  return {
    account_exists: `An account with your address exists already. ${connect}`,
    no_account: "There is no account for you here yet. Sign in another way, or contact your administrator.",
    no_address: `That provider did not tell us your e-mail address. ${connect}`,
    address_not_verified: "That provider has not verified your e-mail address. Verify it there and try again, or sign in another way.",
    not_linked: `Your account there is not connected with your account here. ${connect}`,
    other_account: "Your account there is connected with another account here. Start again, or sign in another way.",
    too_weak: "Signing in there is not enough here. Sign in another way.",
  }[why] ?? RETURNED[returned];
}
// A longer query is not sent to the server. This page restores it by itself.
const LONGEST_QUERY = 2048;
const ENDED = ["session_expired", "session_failed", "invalid_session", "login_required"];

let client = "the application";
let signedIn = "";
let isStepUp = false; // a user who is signed in to the site itself proves more
let onward = `../authorize${location.search}`; // where a completed login goes on
let method = null; // the current one
let retry = null; // the action of the button in `again`
let busy = false;
let hasAccountPage = false;
let isAfresh = false; // the proofs of the session are too old, so a login must not continue it
let detours = 0; // calls that followed from the last action of the user

// ---- what survives a reload

// `choices` is what the user can use: known after the first step, and for a signed-in user (`isKnown`). `until` maps an action to
// the time at which it may be tried again.
function fresh() {
  return { query: location.search, id: null, isNamed: false, isKnown: false, identifier: "", remember: false, methods: [],
    providers: [], choices: null, required: 0, completed: 0, refused: [], code: null, until: {} };
}

function load() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY));
    return kept?.query === location.search || (kept && returned) ? { ...fresh(), ...kept } : fresh();
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

function isChange() {
  try {
    return sessionStorage.getItem(CHANGE) !== null;
  } catch {
    return false;
  }
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
const read = (path) => call(`${path}?session_id=${encodeURIComponent(login.id)}`);

// ---- messages and forms

// The message disappears when the wait named by `until` is over.
function say(words, until = "") {
  at("message").textContent = words;
  at("message").dataset.until = until;
}

function show(name, focus) {
  for (const form of forms) form.hidden = form.id !== name;
  const isStep = ["choose", "password", "key", "address", "code", "app", "newkey"].includes(name);
  at("restart").hidden = !isStep;
  at("restart").textContent = login.isKnown ? "Use another account" : "Start again";
  at("cancel").hidden = !(isStep && login.isKnown && isChange());
  title(login.isKnown && name !== "who");
  const more = ways().length > 1;
  const isTyped = name === "code" && method === login.code?.method && !login.code.contact;
  at("other").hidden = name === "choose" || !(isStep && more || isTyped);
  at("other").textContent = more ? "Try another method" : "Use another address";
  at("step").textContent = isStep && login.required > 1 ? `Step ${login.completed + 1} of ${login.required}` : "";
  at("progress").hidden = !isStep || login.required < 2;
  at("progress").replaceChildren(...Array.from({ length: login.required }, (_, place) => {
    const part = document.createElement("li");
    part.className = place <= login.completed ? "done" : "";
    return part;
  }));
  focus?.focus();
}

// Names what the page is for.
function title(isKnown) {
  const words = isStepUp && isKnown ? "Confirm that it is you" : "Sign in";
  at("title").textContent = words;
  document.title = client ? `${words} to ${client}` : words;
  at("user").textContent = isKnown ? `Signed in as ${login.identifier}.${isChange() ? " Please confirm this change." : ""}` : "";
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
    if (left > 0 && button.isConnected) return;
    clearInterval(ticking.get(button));
    ticking.delete(button);
    if (left <= 0 && at("message").dataset.until === name) say("");
  };
  ticking.set(button, setInterval(tick, 500));
  tick();
}

function wait(name, seconds) {
  login.until[name] = Date.now() + seconds * 1000;
  if (login.id) keep();
}

// Creates the button of a way to sign in.
function wayButton({ name, label, act }) {
  const button = document.createElement("button");
  button.type = "button";
  button.value = name;
  button.textContent = label;
  button.addEventListener("click", () => busy || act());
  return button;
}

// ---- the screens

function who(words = "") {
  say(words);
  at("identifier").value = login.identifier;
  show("who", at("identifier"));
  suggest();
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
  at("whither").textContent = told.continue_to ? "" : purpose(told);
  const button = submitOf("going");
  delete button.dataset.text;
  button.textContent = `Continue as ${name}${told.continue_to ? "" : ` to ${to}`}`;
  show("going", button);
}

// Returns the ways to prove the next step: what the server offers and this page and browser can do.
function ways() {
  const { methods, contacts = [], providers, enrol } = login.choices ?? login;
  const toSetUp = (enrol?.methods ?? []).filter((name) => name !== "passkey" || globalThis.PublicKeyCredential?.parseCreationOptionsFromJSON);
  const setUp = toSetUp.map((name) => ({ name: NEW[name].form, ...NEW[name], isNew: true }));
  const known = methods.filter((name) => !login.refused.includes(name)).flatMap((name) => {
    const { label, begin } = METHODS[name] ?? {};
    const chosen = (action) => run("choose", () => {
      method = name;
      return action();
    });
    if (name === "sso") {
      const known = login.providers.filter((one) => providers.some((provider) => provider.name === one.name));
      return known.map((provider) => ({ name, label: `Continue with ${provider.label}`, act: () => chosen(() => leave(provider)) }));
    }
    if (!begin || (name === "passkey" && !hasPasskeys)) return [];
    const known = contacts.filter((contact) => contact.method === name);
    if (known.length) {
      return known.map(({ contact_id: contact, masked }) =>
        ({ name, masked, contact, label: `${label} to ${masked}`, act: () => chosen(() => send(masked, contact)) }));
    }
    if (name === "passkey") return [{ name, label, begin, act: () => { key(name); run("key", SUBMIT.key); } }];
    return [{ name, label, begin, act: () => begin(name) }];
  });
  return [...known, ...setUp];
}

function choose(words = "") {
  const all = ways();
  method = null;
  if (all.length === 0 && login.choices?.weak_factor) return weak();
  if (all.length === 0) return stuck(words || "No other sign-in method is available.", "Start again", restart);
  if (all.length === 1 && all[0].begin) return all[0].begin(all[0].name, words);
  say(words);
  const isNamed = isStepUp && login.isKnown; // by the heading
  const isSetUp = all.every((way) => way.isNew);
  at("choice").textContent = isSetUp ? "You need a second step to sign in here, and you have none yet. Set one up now. From then on, each sign-in here needs it." : isNamed ? "Choose a method" : login.completed ? "Choose how to confirm that it is you" : "Choose how to sign in";
  at("ways").replaceChildren(...all.map(wayButton));
  for (const button of at("ways").children) hold(button, button.value);
  show("choose", at("ways").firstChild);
}

// The user has a passkey or an app that does not count here. The account page lets users who prove it set up another one.
function weak() {
  const why = "You need a second step to sign in here. Your passkey or authenticator app cannot be that step, because it was set up without one.";
  if (!hasAccountPage || isStepUp) return stuck(`${why} Please contact your administrator.`, "Start again", restart);
  const what = "On your account page, sign in with it and with your password or a code, and set up another one.";
  stuck(`${why} ${what}`, "Go to your account page", () => location.assign(new URL("security", ACCOUNT)));
}

// Sends a code to the only contact that the user could choose.
function sendToOnly() {
  const [{ name, masked, contact }] = ways();
  method = name;
  return send(masked, contact);
}

// Goes back to where the user chooses.
const back = (words) => (login.isNamed || login.completed ? choose(words) : who(words));

function password(name, words = "") {
  method = name;
  say(words);
  // after a passkey or another provider, the name is unknown here
  const isKnown = login.identifier !== "";
  Object.assign(at("username"), { value: login.identifier, readOnly: isKnown, tabIndex: isKnown ? -1 : 0 });
  at("username").hidden = at("username-label").hidden = login.isKnown;
  at("username-label").textContent = isKnown ? "Signing in as" : "User name, e-mail address or phone number";
  at("secret").value = "";
  at("secret").type = "password";
  at("reveal").checked = false;
  hold(submitOf("password"), name);
  show("password", isKnown ? at("secret") : at("username"));
}

function key(name, words = "") {
  method = name;
  say(words);
  hold(submitOf("key"), name);
  show("key", submitOf("key"));
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

// Asks for the code that was sent.
function code() {
  const { to, contact, digits } = login.code;
  const belongs = contact ? "We" : `If ${to} belongs to your account, we`;
  enterCode(login.code.method, `${belongs} have sent a code of ${digits} digits to ${contact ? to : "it"}.`);
  hold(at("resend"), method);
}

// Asks for a code that the user has.
function typed(name, words = "") {
  enterCode(name, METHODS[name].note);
  say(words);
}

function enterCode(name, note) {
  const { inputMode = "numeric", autocomplete = "one-time-code" } = METHODS[name].begin === typed ? METHODS[name] : {};
  method = name;
  say("");
  at("sent").textContent = note;
  Object.assign(at("otp"), { value: "", inputMode, autocomplete });
  at("otp").classList.toggle("digits", inputMode === "numeric");
  at("resend").hidden = METHODS[name].begin === typed;
  hold(submitOf("code"), "otp");
  show("code", at("otp"));
}

// Asks for a new passkey.
function newKey(_, words = "") {
  method = "newkey";
  say(words);
  // a service that offers authenticator apps has recovery codes
  at("newkey-recovery").hidden = !hasAccountPage || !login.choices?.enrol?.methods.includes("totp");
  hold(submitOf("newkey"), method);
  show("newkey", submitOf("newkey"));
}

// Shows a new key for an authenticator app.
async function newApp() {
  const { secret, uri, qr_svg: picture } = await step("enrol", { method: "totp" });
  const svg = new DOMParser().parseFromString(picture, "image/svg+xml").documentElement;
  method = "app";
  at("app-qr").replaceChildren(document.importNode(svg, true));
  at("app-secret").textContent = secret.replace(/(.{4})(?=.)/g, "$1 ");
  at("app-link").href = uri;
  at("app-code").value = "";
  at("app-recovery").hidden = !hasAccountPage;
  hold(submitOf("app"), method);
  show("app", at("app-code"));
}

function restart() {
  forget(login.isKnown ? "" : login.identifier);
  who();
}

// ---- passkeys

let challenge = null; // unused options for a passkey, and until when they can be used
let suggesting = null; // the browser is suggesting passkeys until this is aborted
let canSuggest = false;

// Keeps the options of a response. Each works once.
function offered({ challenges }) {
  const options = challenges?.passkey;
  challenge = options ? { options, until: Date.now() + (options.timeout ?? 60_000) * 0.9 } : null;
}

// Starts a login without a name, for passkeys and providers. A tab needs one at most, because it survives reloads.
let opening = null;
function openUnnamed() {
  return opening ??= (async () => {
    // it must not continue the session of another user
    const answer = await call("start", { ...bound, ...optionalParameters(), continue_session: false });
    if (login.id) throw { code: "late" }; // a name was entered meanwhile
    began(answer, login.identifier);
    login.isNamed = false;
    keep();
  })().finally(() => { opening = null; });
}

// Runs an action in a login without a name. One that ended unnoticed is replaced.
async function unnamed(action) {
  const isOld = Boolean(login.id);
  const open = async () => {
    while (!login.id || login.remember !== at("remember").checked) {
      forget(login.identifier);
      await openUnnamed();
    }
  };
  await open();
  try {
    return await action();
  } catch (thrown) {
    if (!isOld || !ENDED.includes(thrown.code)) throw thrown;
    forget(login.identifier);
    await open();
    return action();
  }
}

async function passkeyOptions() {
  if (!challenge || Date.now() > challenge.until) offered(await step("authenticate", { method: "passkey" }));
  if (!challenge) throw { code: "unsupported_method", wait: 0 };
  return challenge.options;
}

async function askForPasskey(options, more) {
  try {
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
    return (await navigator.credentials.get({ publicKey, ...more })).toJSON();
  } catch {
    throw { code: "no_passkey", wait: 0 };
  }
}

async function proveByPasskey(options, response) {
  method = "passkey";
  challenge = null;
  try {
    return proved(await step("authenticate", { method, challenge: options.challenge, response }));
  } catch (thrown) {
    throw thrown.code === "no_pending_challenge" ? { ...thrown, code: "late_passkey" } : thrown;
  }
}

// Lets the browser suggest passkeys in the field for the name, while this page is visible and waits for a name. It begins again
// with new options before a challenge expires.
async function suggest() {
  if (!canSuggest || suggesting || busy || at("who").hidden || document.hidden) return;
  const stop = new AbortController();
  suggesting = stop;
  let expiry, options, response;
  try {
    options = await unnamed(passkeyOptions);
    stop.signal.throwIfAborted();
    expiry = setTimeout(() => stop.abort(), challenge.until - Date.now());
    response = await askForPasskey(options, { mediation: "conditional", signal: stop.signal });
  } catch {
    // the button still works
    if (!stop.signal.aborted) canSuggest = false;
  } finally {
    clearTimeout(expiry);
    if (suggesting === stop) suggesting = null;
  }
  if (response) run("quick", () => proveByPasskey(options, response));
  else suggest();
}

// ---- the steps

function began(answer, identifier) {
  forget(identifier);
  const { session_id: id, available_methods: methods, providers = [], required_steps: required, next_step: place } = answer;
  const completed = place === null ? required : place - 1;
  Object.assign(login, { id, isNamed: true, methods, providers, required, completed, remember: at("remember").checked });
  offered(answer);
  keep();
}

// Continues with the next step, or ends the login. A message is only sent without a choice if the user did something that leads
// here (`isAsked`): a link or a reload is not enough.
async function next(words, isAsked = false) {
  if (login.completed >= login.required) return finish;
  if (login.completed > 0 || login.isKnown) {
    login.choices = await read("choices");
    keep();
  }
  const all = ways();
  const [only, ...others] = all;
  // a step that was proved long ago is not enough to set up another one
  if (only?.isNew && !login.choices.enrol.fresh_until) throw { code: "fresh_login_required", wait: 0 };
  if (only?.isNew && only.form === "app" && others.length === 0) return newApp;
  if (isAsked && only?.contact && others.length === 0) return sendToOnly;
  // recovery codes replace the other one, so they are one click away
  const [usual, ...more] = all.filter(({ name }) => name !== "recovery_code");
  if (login.completed > 0 && usual?.begin && !usual.isNew && more.length === 0) return void usual.begin(usual.name, words);
  back(words);
}

async function send(to, contact) {
  challenge = null;
  const answer = await step("authenticate", { method, ...(contact ? { contact_id: contact } : { [METHODS[method].field]: to }) });
  login.code = { method, to, contact, digits: answer.challenge.digits, tries: 0 };
  wait(method, answer.challenge.resend_in);
  code();
}

// Leaves for the page of another provider.
async function leave({ name, label }) {
  challenge = null;
  const query = login.query.length <= LONGEST_QUERY ? login.query.slice(1) : "";
  const { redirect_url: to } = await step("authenticate", { method: "sso", provider: name, query });
  keep();
  show(null);
  at("step").textContent = `Taking you to ${label} …`;
  location.assign(to);
}

function counted({ completed_steps: completed, remaining_steps: remaining }) {
  Object.assign(login, { completed, required: completed + remaining });
}

function proved(answer) {
  counted(answer);
  challenge = null;
  Object.assign(login, { refused: [], code: null, choices: null });
  keep();
  return () => next("", true);
}

async function finish() {
  show(null);
  at("step").textContent = client ? `Taking you back to ${client} …` : login.isKnown ? "Taking you back …" : "Signing you in …";
  await step("complete");
  forget();
  location.replace(new URL(onward, here));
}

// Continues a login that was started before the page was loaded.
async function resume(words) {
  const answer = await read("status");
  if (answer.status === "expired" || answer.status === "failed") throw { code: `session_${answer.status}`, wait: 0 };
  counted(answer);
  if (answer.next_step !== null && login.code) return code();
  return next(words);
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
  isStepUp = Boolean(told.continue_to);
  hasAccountPage = Boolean(told.account_page);
  title(false);
  at("stay").hidden = !told.remember_available;
  at("remember").checked = login.remember;
  // users read what they agree to before they enter their name
  const prompts = asked.get("prompt")?.split(" ") ?? [];
  const agrees = told.redirect.kind !== "site" || prompts.includes("consent") || prompts.includes("select_account");
  at("asks").textContent = agrees ? purpose(told) : "";
  await offerQuickWays(told);
  if (login.id && (login.isNamed || login.completed || returned)) return () => resume(outcome(told.account_page));
  if (returned) return who(outcome(told.account_page) ?? WORDS.invalid_session);
  login.identifier ||= asked.get("login_hint") ?? "";
  if (told.signed_in) {
    signedIn = told.signed_in;
    return isStepUp && !told.confirmation_required ? SUBMIT.going : going(told);
  }
  if (told.available_methods.length === 0) throw { code: "access_denied", wait: 0 };
  who();
}

// Shows the ways that need no name.
async function offerQuickWays({ available_methods: methods, providers = [] }) {
  const withPasskey = hasPasskeys && methods.includes("passkey");
  canSuggest = withPasskey && Boolean(await PublicKeyCredential.isConditionalMediationAvailable?.());
  at("with-passkey").hidden = !withPasskey;
  at("providers").replaceChildren(...providers.map((provider) => wayButton({
    name: provider.name,
    label: `Continue with ${provider.label}`,
    act: () => run("quick", () => unnamed(() => leave(provider))),
  })));
  at("quick").hidden = !withPasskey && providers.length === 0;
}

// ---- errors

const submitOf = (name) => at(name).querySelector("button:not([type])");

// `place` is the form that was sent, or null. `again` repeats the action.
function failed({ code: name, wait: seconds }, place, again) {
  const isPassword = name === "invalid_credentials" && login.isKnown;
  let words = isPassword ? "The password is wrong." : WORDS[name] ?? `${LINK} (${name})`;
  if (seconds > 1) words += ` You can try again in ${span(seconds)}.`;
  if (ENDED.includes(name)) return stuck(words, "Start again", restart);
  if (name === "fresh_login_required") {
    forget(login.isKnown ? "" : login.identifier);
    isAfresh = true;
    return who(words);
  }
  if (name === "step_required") {
    forget();
    return who(words);
  }
  const elsewhere = { no_step_remaining: finish, steps_remaining: resume }[name];
  if (elsewhere && login.id && detours++ === 0) return run(null, () => elsewhere());
  // another tab has set one up
  if (name === "method_not_allowed" && ["app", "newkey"].includes(place)) return run(null, () => next(words));
  if (name === "no_pending_challenge" && ["app", "newkey"].includes(place)) return choose(WORDS.late_setup);
  if (name.endsWith("method_not_allowed") || name === "unsupported_method") {
    if (method) login.refused.push(method);
    return back(words);
  }
  // the button still works
  if (name === "invalid_assertion") canSuggest = false;
  if (name === "no_pending_challenge" && login.code) {
    const { contact } = login.code;
    login.code = null;
    keep();
    return contact ? choose(words) : address(method, words);
  }
  if (!place || place === "again") {
    stuck(words, "Try again", again);
    place = "again";
  }
  const what = { who: "start", quick: "start", code: "otp", again: "again" }[place] ?? method;
  if (seconds) wait(what, seconds);
  if (place === "choose") choose();
  say(words, seconds ? what : "");
  if (place !== "choose" && seconds) {
    const buttons = { resend: [at("resend")], quick: at("quick").querySelectorAll("button") }[place] ?? [submitOf(place)];
    for (const button of buttons) hold(button, what);
  }
  if (name === "invalid_request") {
    if (place === "who") say("This is not a valid user name, e-mail address or phone number.");
    if (place === "address") say(`This address is not valid. ${METHODS[method].note}`);
  }
  if (name === "invalid_otp" && login.code?.method === method) {
    login.code.tries += 1;
    keep();
    if (login.code.tries > 1) say(`${words} You have tried ${login.code.tries} times. After five tries you need a new code.`);
  }
  ({ who: at("identifier"), password: at("secret"), address: at("to"), code: at("otp"), app: at("app-code"), key: submitOf("key") })[place]?.focus();
}

// Runs one action at a time and ignores others meanwhile. An action can return the next one.
async function run(place, action) {
  if (busy) return;
  busy = true;
  suggesting?.abort();
  if (place) detours = 0;
  document.body.setAttribute("aria-busy", "true");
  say("");
  let following, failure;
  try {
    following = await action();
  } catch (thrown) {
    failure = thrown?.code ? thrown : { code: "internal", wait: 0 };
  }
  busy = false;
  document.body.removeAttribute("aria-busy");
  if (failure) failed(failure, place, () => run(null, action));
  if (following) run(following === sendToOnly ? "choose" : null, following);
  else suggest();
}

const SUBMIT = {
  async who() {
    const identifier = at("identifier").value.trim();
    login.identifier = identifier;
    const afresh = isAfresh ? { continue_session: false } : {};
    began(await call("start", { ...bound, ...optionalParameters(), identifier, ...afresh }), identifier);
    return () => next();
  },
  async going() {
    began(await call("start", { ...bound, ...optionalParameters() }), signedIn);
    login.isKnown = true;
    keep();
    return () => next("", isChange());
  },
  async password() {
    const [username, secret] = [at("username").value.trim(), at("secret").value];
    at("secret").value = "";
    // the shown name of a signed-in user need not be one to sign in with
    return proved(await step("authenticate", { method, ...(login.isKnown ? {} : { username }), password: secret }));
  },
  async key() {
    const options = await passkeyOptions();
    return proveByPasskey(options, await askForPasskey(options));
  },
  async newkey() {
    const { publicKey } = await step("enrol", { method: "passkey" });
    let response;
    try {
      const options = PublicKeyCredential.parseCreationOptionsFromJSON(publicKey);
      response = (await navigator.credentials.create({ publicKey: options })).toJSON();
    } catch {
      throw { code: "no_new_passkey", wait: 0 };
    }
    return proved(await step("enrol", { method: "passkey", response }));
  },
  async app() {
    const code = at("app-code").value.replace(/[\s-]/g, "");
    at("app-code").value = "";
    return proved(await step("enrol", { method: "totp", code }));
  },
  address: () => send(at("to").value.trim()),
  async code() {
    const otp = method === "recovery_code" ? at("otp").value.trim() : at("otp").value.replace(/[\s-]/g, "");
    at("otp").value = "";
    if (METHODS[method].begin === typed) return proved(await step("authenticate", { method, code: otp }));
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
at("with-passkey").addEventListener("click", () => run("quick", async () => {
  const options = await unnamed(passkeyOptions);
  return proveByPasskey(options, await askForPasskey(options));
}));
at("resend").addEventListener("click", () => run("resend", () => send(login.code.to, login.code.contact)));
at("have").addEventListener("click", () => busy || code());
at("other").addEventListener("click", () => busy || choose());
at("another").addEventListener("click", () => busy || who());
at("restart").addEventListener("click", () => busy || restart());
at("cancel").addEventListener("click", () => busy || location.assign(new URL("security", ACCOUNT)));
at("reveal").addEventListener("change", (event) => { at("secret").type = event.target.checked ? "text" : "password"; });
at("remember").addEventListener("change", () => suggesting?.abort());
document.addEventListener("visibilitychange", () => suggest());

run(null, begin);
