// The login page, from the user's name to the redirect back. In other modes it creates an account, or sets a new password for a
// forgotten one. Its input is its own URL and the responses of the server. It keeps the progress of a login in the sessionStorage of
// the tab, so that it survives a reload. Nothing stored there is secret.
const here = new URL(".", import.meta.url);
const SIGN_IN_KEY = `login ${here.pathname}`;
const mode = /\/(sign-up|reset-password)$/.exec(location.pathname)?.[1] ?? "sign-in";
const RESET_KEY = `reset-password ${here.pathname}`;
const KEY = { "sign-in": SIGN_IN_KEY, "reset-password": RESET_KEY }[mode] ?? `${mode} ${here.pathname}`;
// Set by the account page while its user confirms a change here.
const ACCOUNT = new URL("../account/", here);
const CHANGE = `account ${ACCOUNT.pathname}`;
const NOTE = `${CHANGE} note`;
const at = (id) => document.getElementById(id);
const forms = [...document.forms];
// The words of this page in the language of the user.
const words = JSON.parse(at("words").textContent);
const word = (key, values = {}) => words[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);

// How a sign-in at another provider ended. The browser then comes back to this page.
const [, returned, why] = /^#sso=(\w+)(?:&reason=(\w+))?$/.exec(location.hash) ?? [];
// The user has allowed a client after the sign-in had timed out.
const isLate = location.hash === "#consent=late";
// The secret of a link in a message. It leaves the address bar at once, and is sent only after a click.
const [, linkKind, link] = /^#(invitation|reset)=([\w-]{43})$/.exec(location.hash) ?? [];
let login = load();
history.replaceState(null, "", location.pathname + (returned && login.id ? login.query : location.search));
let asked = new URLSearchParams(location.search);
// Parameters of the request that only the start of a login takes.
const optionalParameters = () => ({
  ...Object.fromEntries(["acr_values", "prompt", "max_age", "claims", "return_to", "steps"].map((name) => [name, asked.get(name)])),
  remember: at("remember").checked,
  ui_locales: document.documentElement.lang,
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
  ask: word("login.phone_label"), note: word("login.phone_note") };
const METHODS = {
  password: { label: word("login.method_password"), begin: password },
  passkey: { label: word("login.method_passkey"), begin: key },
  sso: {},
  sms: { ...PHONE, label: word("login.method_sms") },
  whatsapp: { ...PHONE, label: word("login.method_whatsapp") },
  email: { label: word("login.method_email"), begin: address, field: "email", type: "email",
    autocomplete: "email", ask: word("login.email_label"), note: word("login.email_note") },
  totp: { label: word("login.method_totp"), begin: typed, inputMode: "numeric", autocomplete: "one-time-code",
    note: word("login.totp_note") },
  recovery_code: { label: word("login.method_recovery_code"), begin: typed, inputMode: "text", autocomplete: "off",
    note: word("login.recovery_note") },
};
const hasPasskeys = Boolean(globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON);
// What users who have only one factor can set up to prove the second step.
const NEW = {
  passkey: { form: "newkey", label: word("login.set_up_passkey"), begin: newKey, act: () => { newKey(); run("newkey", SUBMIT.newkey); } },
  totp: { form: "app", label: word("login.set_up_app"), act: () => run("choose", newApp) },
};

// Every other error means that the link was wrong.
const problem = (code) => words[`login.error_${code}`] ?? words[`shared.error_${code}`]?.replace("{count}", leastPassword) ?? `${word("login.link")} (${code})`;
const RETURNED = {
  denied: "login.sso_denied",
  failed: "login.error_sso_failed",
  stale: "login.sso_stale",
  expired: "login.sso_expired",
  unavailable: "login.error_provider_unavailable",
};

// Returns how a sign-in at another provider ended. `canConnect` tells whether the user has an account page here.
function outcome(canConnect) {
  const help = word(canConnect ? "login.sso_connect" : "login.sso_contact");
  const key = why && words[`login.sso_${why}`] ? `login.sso_${why}` : RETURNED[returned];
  return key && word(key, { help });
}
// A longer query is not sent to the server. This page restores it by itself.
const LONGEST_QUERY = 2048;
// The server compares no more codes with one that it has sent.
const MOST_TRIES = 5;
const ENDED = ["session_expired", "session_failed", "invalid_session", "login_required"];

let client = word("login.the_application");
let signedIn = "";
let isStepUp = false; // a user who is signed in to the site itself proves more
let onward = `../authorize${location.search}`; // where a completed login goes on
let method = null; // the current one
let retry = null; // the action of the button in `again`
let busy = false;
let canSignUp = null; // the page on which users create an account, and whether they need an invitation
let leastPassword = 0; // the minimum length of a new password
let hasAccountPage = false;
let isAfresh = false; // the proofs of the session are too old, so a login must not continue it
let detours = 0; // calls that followed from the last action of the user

// ---- what survives a reload

// `choices` is what the user can use: known after the first step, and for a signed-in user (`isKnown`). `until` maps an action to
// the time at which it may be tried again, `why` to the message that came with the wait.
function fresh() {
  return { query: location.search, id: null, isNamed: false, isKnown: false, identifier: "", remember: false, methods: [],
    providers: [], choices: null, required: 0, completed: 0, refused: [], code: null, address: "", isProved: false, hasNewPassword: false,
    hasUsedCode: false, until: {}, why: {} };
}

// Returns what this tab has kept under a key, or null.
function kept(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key));
  } catch {
    return null;
  }
}

// Keeps a value, or with null none. If the browser forbids that, a reload starts again.
function store(key, value) {
  try {
    if (value) sessionStorage.setItem(key, JSON.stringify(value));
    else sessionStorage.removeItem(key);
  } catch { /* see above */ }
}

function load() {
  const before = kept(KEY);
  return before && (returned || before.query === location.search) ? { ...fresh(), ...before } : fresh();
}

function keep() {
  store(KEY, login);
}

function forget(identifier = "") {
  login = { ...fresh(), identifier };
  store(KEY, null);
}

// Returns the change that the user confirms here.
function pendingChange() {
  // one that was abandoned is not what another sign-in is for
  if (asked.get("return_to") !== `${ACCOUNT.pathname}security`) store(CHANGE, null);
  return kept(CHANGE);
}

// Leaves a note for the account page, and returns the one that it has left here.
function note(text) {
  const left = kept(NOTE);
  store(NOTE, text);
  return left;
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
function say(text, until = "") {
  at("message").textContent = text;
  at("message").dataset.until = until;
}

// Shows a text. An address of this site in it becomes a link, which leaves this page open.
function showText(element, text) {
  element.replaceChildren(...text.split(/(\s+|[.,]+(?=\s|$))/).map((part) => part.startsWith(`${location.origin}/`)
    ? Object.assign(document.createElement("a"), { href: part, target: "_blank", textContent: part })
    : part));
}

function show(name, focus) {
  for (const form of forms) form.hidden = form.id !== name;
  for (const id of ["secret", "otp", "app-code"]) if (at(id).form.id !== name) at(id).value = "";
  const isStep = ["choose", "password", "key", "address", "code", "app", "newkey", "newpassword"].includes(name);
  at("restart").hidden = !isStep;
  at("restart").textContent = word(login.isKnown ? "login.another_account" : "login.start_again");
  at("cancel").hidden = !(isStep && login.isKnown && pendingChange());
  title(login.isKnown && name !== "who");
  if (name === "choose" && !login.isKnown && login.isNamed && login.identifier) {
    at("user").textContent = word("login.account", { name: login.identifier });
  }
  const more = ways().length > 1 && !(mode === "sign-up" && login.completed === 0);
  const isTyped = name === "code" && method === login.code?.method && !login.code.contact;
  at("other").hidden = ["choose", "newpassword"].includes(name) || !(isStep && more || isTyped);
  at("to-reset").hidden = !(at("to-reset").href && mode === "sign-in" && ["who", "password"].includes(name) && !login.isKnown);
  at("to-sign-up").hidden = !(at("to-sign-up").href && mode === "sign-in" && name === "who");
  at("to-sign-in").hidden = mode === "sign-in" || name === "again" || login.completed > 0 || login.isProved;
  at("lost").hidden = !((name === "key" || method === "totp") && isStep && login.completed > 0 && ways().length === 1);
  at("other").textContent = word(more ? "login.try_another" : "login.another_address");
  // a new password comes after the steps that allow it
  const isCounted = isStep && login.required > 1 && !(mode === "reset-password" && name === "newpassword");
  at("step").textContent = isCounted
    ? word("login.step_of", { step: login.completed + 1, steps: login.required }) : "";
  at("progress").hidden = !isCounted;
  at("progress").replaceChildren(...Array.from({ length: login.required }, (_, place) => {
    const part = document.createElement("li");
    part.className = place <= login.completed ? "done" : "";
    return part;
  }));
  focus?.focus();
}

// Names what the page is for.
function title(isKnown) {
  const heading = word({ "sign-up": "login.title_sign_up", "reset-password": "login.title_reset" }[mode]
    ?? (isStepUp && isKnown ? "login.title_confirm" : "login.title"));
  at("title").textContent = heading;
  document.title = client ? `${heading} ${word("login.to_client", { client })}` : heading;
  const change = pendingChange() ? ` ${word("login.confirm_change")}` : "";
  at("user").textContent = isKnown ? word("login.signed_in_as", { name: login.identifier }) + change : "";
}

function span(seconds) {
  if (seconds < 100) return word("login.seconds", { count: seconds });
  if (seconds < 5400) return word("login.minutes", { count: Math.ceil(seconds / 60) });
  return word("login.hours", { count: Math.ceil(seconds / 3600) });
}

// Disables a button until the wait of this name is over. The button shows the remaining time, and the page why.
const ticking = new Map();
function hold(button, name) {
  const text = (button.dataset.text ??= button.textContent);
  clearInterval(ticking.get(button));
  const seconds = () => Math.ceil(((login.until[name] ?? 0) - Date.now()) / 1000);
  const tick = () => {
    const left = seconds();
    button.disabled = left > 0;
    button.textContent = left > 0 ? word("login.button_wait", { button: text, time: span(left) }) : text;
    if (left > 0 && button.isConnected) return;
    clearInterval(ticking.get(button));
    ticking.delete(button);
    if (left <= 0 && at("message").dataset.until === name) say("");
  };
  ticking.set(button, setInterval(tick, 500));
  tick();
  if (seconds() > 1 && login.why[name] && !at("message").textContent) say(withWait(login.why[name], seconds()), name);
}

const withWait = (message, seconds) => `${message} ${word("login.wait", { time: span(seconds) })}`;

function wait(name, seconds, why = "") {
  login.until[name] = Date.now() + seconds * 1000;
  login.why[name] = why;
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

function who(message = "") {
  if (mode === "sign-up") return join(message);
  say(message);
  at("identifier").value = login.identifier;
  show("who", at("identifier"));
  suggest();
}

// Asks for the address of a new account.
function join(message = "") {
  method = "email";
  if (link) return invited(message);
  if (canSignUp?.invitation_only) return stuck(message || word("login.join_closed"), word("login.to_sign_in"), toSignIn);
  say(message);
  if (!at("join-to").value) at("join-to").value = login.code?.to ?? asked.get("login_hint") ?? "";
  hold(submitOf("join"), "email");
  show("join", at("join-to"));
}

// Asks whether to use the link of a message. Programs that open links press no buttons.
function invited(message = "") {
  say(message);
  at("invited-note").textContent = word(linkKind === "reset" ? "login.reset_invited" : "login.invited");
  show("invited", submitOf("invited"));
}

// Asks for a new password.
function newPassword(message = "") {
  method = "newpassword";
  say(message);
  at("new-hint").textContent = word("shared.password_hint", { count: leastPassword });
  at("new-name").value = login.address || login.identifier;
  at("new-secret").value = "";
  at("new-secret").type = "password";
  at("new-reveal").checked = false;
  const button = submitOf("newpassword");
  button.dataset.text = word(mode === "sign-up" ? "login.create_account" : "login.set_password");
  hold(button, method);
  show("newpassword", at("new-secret"));
}

const toSignIn = () => location.assign(new URL(`start${location.search}`, here));

// Shows a message and one button.
function stuck(message, label, action) {
  say(message);
  retry = action;
  const button = at("again").querySelector("button");
  button.dataset.text = label;
  login.until.again = 0;
  hold(button, "again");
  show("again", button);
}

// Names the client and what it asks for.
function purpose({ client_name: to, redirect, scopes, claims = [] }) {
  const place = { site: redirect.host, loopback: word("login.on_program"), app: word("login.on_app") }[redirect.kind];
  const names = new Set([...scopes, ...claims].map((name) => words[`login.scope_${name}`] ?? name));
  return word("login.asks_for", { client: to, place, scopes: [...names].join(", ") });
}

// The user is already signed in.
function going(told, message) {
  say(message);
  const { signed_in: name, client_name: to } = told;
  at("whither").textContent = told.continue_to ? "" : purpose(told);
  const button = submitOf("going");
  delete button.dataset.text;
  button.textContent = told.continue_to ? word("login.continue_as", { name }) : word("login.continue_as_to", { name, client: to });
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
      return known.map((provider) => ({ name, label: word("login.continue_with", { provider: provider.label }), act: () => chosen(() => leave(provider)) }));
    }
    if (!begin || (name === "passkey" && !hasPasskeys)) return [];
    const known = contacts.filter((contact) => contact.method === name);
    if (known.length) {
      return known.map(({ contact_id: contact, masked }) =>
        ({ name, masked, contact, label: word("login.method_to", { method: label, address: masked }), act: () => chosen(() => send(masked, contact)) }));
    }
    if (name === "passkey") return [{ name, label, begin, act: () => { key(name); run("key", SUBMIT.key); } }];
    if (name === "email" && isTypedAddress()) return [{ name, label, begin, act: () => run("address", sendToTyped) }];
    return [{ name, label, begin, act: () => begin(name) }];
  });
  if (mode === "reset-password") {
    // users expect a code where they have typed
    const type = /.@./.test(login.identifier) ? "email" : /^[\d ()./+-]+$/.test(login.identifier) ? "tel" : null;
    const isFirst = ({ name }) => METHODS[name].type === type;
    known.sort((one, other) => isFirst(other) - isFirst(one));
  }
  // codes to a contact can't confirm that another one of its kind replaces it
  const besides = isStepUp && login.isKnown && pendingChange()?.besides;
  const others = known.filter(({ name }) => METHODS[name].type !== besides);
  return [...(besides && others.some(({ name }) => name !== "recovery_code") ? others : known), ...setUp];
}

function choose(message = "") {
  if (mode === "sign-up" && login.completed === 0) return join(message);
  const all = ways();
  method = null;
  if (all.length === 0 && login.choices?.weak_factor) return weak();
  if (all.length === 0 && mode === "reset-password") return stuck(word("login.reset_too_few"), word("login.start_again"), restart);
  if (all.length === 0) return stuck(message || word("login.no_other_method"), word("login.start_again"), restart);
  if (all.length === 1 && all[0].begin) return all[0].begin(all[0].name, message);
  say(message);
  const isNamed = isStepUp && login.isKnown; // by the heading
  const isSetUp = all.every((way) => way.isNew);
  at("choice").textContent = word(isSetUp ? "login.choose_set_up" : isNamed ? "login.choose_method" : login.completed || mode === "reset-password" ? "login.choose_confirm" : "login.choose");
  at("ways").replaceChildren(...all.map(wayButton));
  for (const button of at("ways").children) hold(button, button.value);
  show("choose", at("ways").firstChild);
}

// The user has a passkey or an app that does not count here. The account page lets users who prove it set up another one.
function weak() {
  const isStuck = !hasAccountPage || isStepUp;
  const message = `${word("login.weak_factor")} ${word(isStuck ? "login.weak_contact" : "login.weak_account_page")}`;
  if (isStuck) return stuck(message, word("login.start_again"), restart);
  stuck(message, word("login.to_account_page"), () => location.assign(new URL("security", ACCOUNT)));
}

// Sends a code to the only contact that the user could choose.
function sendToOnly() {
  const [{ name, masked, contact }] = ways();
  method = name;
  return send(masked, contact);
}

// Goes back to where the user chooses.
const back = (message) => (login.isNamed || login.completed ? choose(message) : who(message));

function password(name, message = "") {
  method = name;
  say(message);
  // after a passkey or another provider, the name is unknown here
  const isKnown = login.identifier !== "";
  Object.assign(at("username"), { value: login.identifier, readOnly: isKnown, tabIndex: isKnown ? -1 : 0 });
  at("username").hidden = at("username-label").hidden = login.isKnown;
  at("username-label").textContent = word(isKnown ? "login.signing_in_as" : "login.name");
  at("secret").value = "";
  at("secret").type = "password";
  at("reveal").checked = false;
  hold(submitOf("password"), name);
  show("password", isKnown ? at("secret") : at("username"));
}

function key(name, message = "") {
  method = name;
  say(message);
  hold(submitOf("key"), name);
  show("key", submitOf("key"));
}

function address(name, message = "") {
  const { field, type, autocomplete, ask, note } = METHODS[name];
  const to = at("to");
  if (method !== name || !to.value) to.value = (type === "email" ? /.@./ : /^\+/).test(login.identifier) ? login.identifier : "";
  method = name;
  say(message);
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
  const key = mode === "sign-up" && login.completed === 0 ? "login.code_join" : contact ? "login.code_sent" : "login.code_maybe_sent";
  enterCode(login.code.method, word(key, { address: to, digits }));
  hold(at("resend"), method);
  if (isUsedUp()) {
    say(problem("no_pending_challenge"));
    at("message").tabIndex = -1;
    (at("resend").disabled ? at("message") : at("resend")).focus();
  }
}

// Returns whether the server takes the code that was sent no more.
const isUsedUp = () => login.code?.method === method && login.code.tries >= MOST_TRIES;

// Asks for a code that the user has.
function typed(name, message = "") {
  enterCode(name, METHODS[name].note, message);
}

function enterCode(name, note, message = "") {
  const { inputMode = "numeric", autocomplete = "one-time-code" } = METHODS[name].begin === typed ? METHODS[name] : {};
  method = name;
  say(message);
  showText(at("sent"), note);
  // a code that is too short costs no try; apps show six or eight digits
  const counts = { totp: [6, 8], recovery_code: [] }[name] ?? [login.code.digits];
  const pattern = counts.map((count) => `(?:[\\s\\-]*\\d){${count}}[\\s\\-]*`).join("|") || ".*";
  Object.assign(at("otp"), { value: "", inputMode, autocomplete, pattern });
  at("otp").classList.toggle("digits", inputMode === "numeric");
  at("resend").hidden = METHODS[name].begin === typed;
  at("otp").disabled = submitOf("code").hidden = isUsedUp();
  hold(submitOf("code"), "otp");
  show("code", at("otp"));
}

// Asks for a new passkey.
function newKey(_, message = "") {
  method = "newkey";
  say(message);
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
  store(CHANGE, null);
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
async function next(message, isAsked = false) {
  if (mode === "reset-password" && login.completed >= login.required) return void newPassword(message);
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
  if (isAsked && only?.name === "email" && isTypedAddress() && others.length === 0) return sendToTyped;
  // recovery codes replace the other one, so they are one click away
  const [usual, ...more] = all.filter(({ name }) => name !== "recovery_code");
  if (login.completed > 0 && usual?.begin && !usual.isNew && more.length === 0) return void usual.begin(usual.name, message);
  back(message);
}

// A user whose name is an address hardly types another one. After a first code, the page asks for one.
const isTypedAddress = () => !login.isKnown && login.completed === 0 && !login.code && /.@./.test(login.identifier);

// Sends a code to the address that was typed as the name. If it is no address, the form asks for one.
function sendToTyped() {
  address("email");
  return send(login.identifier);
}

// Sends a code to the address of a new account.
async function sendToNew(email) {
  const answer = await step("../sign-up/code", { email });
  login.code = { method: "email", to: email, contact: null, digits: answer.digits, tries: 0 };
  wait("email", answer.resend_in);
  keep();
  code();
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
  at("step").textContent = word("shared.taking_you_to", { place: label });
  location.assign(to);
}

function counted({ completed_steps: completed, remaining_steps: remaining }) {
  Object.assign(login, { completed, required: completed + remaining });
}

function proved(answer) {
  counted(answer);
  challenge = null;
  login.hasUsedCode ||= method === "recovery_code";
  Object.assign(login, { refused: [], code: null, choices: null });
  keep();
  return () => next("", true);
}

async function finish() {
  show(null);
  at("step").textContent = client ? word("login.back_to", { client }) : word(login.isKnown ? "login.back" : "login.signing_in");
  await step("complete");
  note(login.hasUsedCode && "recovery_code");
  forget();
  location.replace(new URL(onward, here));
}

// Continues a login that was started before the page was loaded.
async function resume(message) {
  const answer = await read("status");
  if (answer.status === "expired" || answer.status === "failed") throw { code: `session_${answer.status}`, wait: 0 };
  counted(answer);
  if (login.isProved && login.completed === 0) return newPassword();
  if (answer.next_step !== null && login.code) return code();
  return next(message);
}

async function begin() {
  show(null);
  const told = await call(`start${location.search}`);
  // the parameters of a pushed request are in no URL
  bind(told.parameters ?? location.search);
  // a sign-in to the site itself has no client and asks for no consent
  onward = told.continue_to ?? onward;
  client = told.continue_to ? "" : told.client_name;
  at("client").textContent = client && word("login.to_client", { client });
  isStepUp = Boolean(told.continue_to);
  hasAccountPage = Boolean(told.account_page);
  title(false);
  canSignUp = told.sign_up;
  leastPassword = told.least_password;
  if (canSignUp && !canSignUp.invitation_only) at("to-sign-up").href = canSignUp.path + location.search;
  if (told.reset_password) at("to-reset").href = told.reset_password + location.search;
  at("to-sign-in").href = new URL(`start${location.search}`, here);
  if ({ "sign-up": !canSignUp, "reset-password": !told.reset_password }[mode]) throw { code: "access_denied", wait: 0 };
  at("stay").hidden = !told.remember_available || mode !== "sign-in";
  at("remember").checked = login.remember;
  // users read what they agree to before they enter their name
  const prompts = asked.get("prompt")?.split(" ") ?? [];
  const agrees = told.redirect.kind !== "site" || prompts.includes("consent") || prompts.includes("select_account");
  at("asks").textContent = agrees ? purpose(told) : "";
  if (mode === "sign-in") await offerQuickWays(told);
  if (link) {
    forget();
    return invited();
  }
  if (login.id && (login.isNamed || login.completed || login.code || login.isProved || returned)) return () => resume(outcome(told.account_page));
  if (returned) return who(outcome(told.account_page) ?? problem("invalid_session"));
  login.identifier ||= asked.get("login_hint") ?? "";
  const late = isLate ? word("login.consent_late") : "";
  if (told.signed_in && mode === "sign-in") {
    signedIn = told.signed_in;
    return isStepUp && !told.confirmation_required ? SUBMIT.going : going(told, late);
  }
  if (told.available_methods.length === 0 && mode !== "reset-password") throw { code: "access_denied", wait: 0 };
  // unless the user has something to read or to tick first
  if (login.hasNewPassword && login.identifier && !agrees && at("stay").hidden) return useNewPassword;
  who(late || (note() === "ended" ? problem("step_required") : ""));
}

// Asks for the password that the user has just set, without a choice.
async function useNewPassword() {
  const { identifier } = login;
  began(await call("start", { ...bound, ...optionalParameters(), identifier }), identifier);
  return login.completed === 0 && login.methods.includes("password") ? void password("password") : () => next("");
}

// Shows the ways that need no name.
async function offerQuickWays({ available_methods: methods, providers = [] }) {
  const withPasskey = hasPasskeys && methods.includes("passkey");
  canSuggest = withPasskey && Boolean(await PublicKeyCredential.isConditionalMediationAvailable?.());
  at("with-passkey").hidden = !withPasskey;
  at("providers").replaceChildren(...providers.map((provider) => wayButton({
    name: provider.name,
    label: word("login.continue_with", { provider: provider.label }),
    act: () => run("quick", () => unnamed(() => leave(provider))),
  })));
  at("quick").hidden = !withPasskey && providers.length === 0;
}

// ---- errors

const submitOf = (name) => at(name).querySelector("button:not([type])");
const WRONG_CODE = { totp: "login.wrong_app_code", app: "login.wrong_app_code", recovery_code: "login.wrong_recovery_code" };

// `place` is the form that was sent, or null. `again` repeats the action.
function failed({ code: name, wait: seconds }, place, again) {
  const wrong = name === "invalid_credentials" && login.isKnown ? "login.wrong_password" : name === "invalid_otp" ? WRONG_CODE[method] : "";
  const isCode = mode === "sign-up" && ["join", "resend"].includes(place) && name === "too_many_attempts";
  const why = isCode ? word("login.too_many_codes") : wrong ? word(wrong) : problem(name === "invalid_session" && !navigator.cookieEnabled ? "no_cookies" : name);
  const message = seconds > 1 ? withWait(why, seconds) : why;
  if (ENDED.includes(name)) return stuck(message, word("login.start_again"), restart);
  if (name === "account_exists") return stuck(message, word("login.to_sign_in"), toSignIn);
  if (name === "invalid_link") return stuck(message, word("login.to_sign_in"), toSignIn);
  if (place === "join" && name === "access_denied") return join(word("login.join_denied"));
  if (mode === "sign-up" && login.completed === 0 && ["no_pending_challenge", "step_required"].includes(name)) {
    Object.assign(login, { code: null, isProved: false });
    keep();
    return join(name === "step_required" ? problem("session_expired") : message);
  }
  if (name === "fresh_login_required") {
    forget(login.isKnown ? "" : login.identifier);
    isAfresh = true;
    return who(message);
  }
  if (name === "step_required") {
    forget();
    return who(message);
  }
  const elsewhere = { no_step_remaining: finish, steps_remaining: resume }[name];
  if (elsewhere && login.id && detours++ === 0) return run(null, () => elsewhere());
  // another tab has set one up
  if (name === "method_not_allowed" && ["app", "newkey"].includes(place)) return run(null, () => next(message));
  if (name === "no_pending_challenge" && ["app", "newkey"].includes(place)) return choose(word("login.late_setup"));
  if (name.endsWith("method_not_allowed") || name === "unsupported_method") {
    if (method) login.refused.push(method);
    return back(message);
  }
  // the button still works
  if (name === "invalid_assertion") canSuggest = false;
  if (name === "no_pending_challenge" && login.code) {
    const { contact } = login.code;
    login.code = null;
    keep();
    return contact ? choose(message) : address(method, message);
  }
  if (!place || place === "again") {
    stuck(message, word("login.try_again"), again);
    place = "again";
  }
  const what = { who: "start", quick: "start", code: "otp", again: "again" }[place] ?? method;
  if (seconds) wait(what, seconds, why);
  if (place === "choose") choose();
  say(message, seconds ? what : "");
  if (place !== "choose" && seconds) {
    const buttons = { resend: [at("resend")], quick: at("quick").querySelectorAll("button") }[place] ?? [submitOf(place)];
    for (const button of buttons) hold(button, what);
  }
  if (name === "invalid_request") {
    if (place === "who") say(word("login.bad_name"));
    if (place === "address" || place === "join") say(word("login.bad_address", { note: METHODS[method].note }));
  }
  if (name === "invalid_otp" && login.code?.method === method) {
    login.code.tries += 1;
    keep();
    if (isUsedUp()) return code();
    if (login.code.tries > 1) say(`${message} ${word("login.code_tries", { count: login.code.tries })}`);
  }
  ({ who: at("identifier"), password: at("secret"), address: at("to"), code: at("otp"), app: at("app-code"), key: submitOf("key"),
    join: at("join-to"), newpassword: at("new-secret") })[place]?.focus();
  // the next one replaces it
  if (place === "newpassword") at("new-secret").select();
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
  // users type nothing again because of their connection
  if (failure?.code !== "unreachable") for (const id of ["secret", "otp", "app-code"]) at(id).value = "";
  if (failure) failed(failure, place, () => run(null, action));
  if (following) run(following === sendToOnly ? "choose" : following === sendToTyped ? "address" : null, following);
  else suggest();
}

const SUBMIT = {
  async who() {
    const identifier = at("identifier").value.trim();
    login.identifier = identifier;
    const afresh = isAfresh ? { continue_session: false } : {};
    const path = mode === "reset-password" ? "../reset-password/start" : "start";
    began(await call(path, { ...bound, ...optionalParameters(), identifier, ...afresh }), identifier);
    return () => next("", mode === "reset-password" || isTypedAddress());
  },
  async join() {
    const email = at("join-to").value.trim();
    await unnamed(() => sendToNew(email));
  },
  async invited() {
    if (linkKind === "reset") {
      began(await call("../reset-password/start", { ...bound, ...optionalParameters() }), "");
      await step("../reset-password/link", { link });
    } else {
      const { email } = await unnamed(() => step("../sign-up/invitation", { link }));
      login.address = email;
    }
    login.isProved = true;
    keep();
    newPassword();
  },
  async newpassword() {
    const password = at("new-secret").value;
    if (mode === "sign-up") {
      const answer = await step("../sign-up", { password });
      Object.assign(login, { identifier: login.address, isNamed: true, isProved: false });
      return proved(answer);
    }
    await step("../reset-password", { password });
    const { identifier } = login;
    forget();
    store(SIGN_IN_KEY, { query: location.search, identifier, hasNewPassword: true });
    stuck("", word("login.continue"), toSignIn);
    at("title").textContent = word("login.password_set");
    at("user").textContent = word("login.password_set_text");
  },
  async going() {
    began(await call("start", { ...bound, ...optionalParameters() }), signedIn);
    login.isKnown = true;
    keep();
    return () => next("", Boolean(pendingChange()));
  },
  async password() {
    const [username, secret] = [at("username").value.trim(), at("secret").value];
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
    return proved(await step("enrol", { method: "totp", code }));
  },
  address: () => send(at("to").value.trim()),
  async code() {
    const otp = method === "recovery_code" ? at("otp").value.trim() : at("otp").value.replace(/[\s-]/g, "");
    if (mode === "sign-up" && login.completed === 0) {
      await step("../sign-up/verify", { otp });
      Object.assign(login, { address: login.code.to, isProved: true, code: null });
      keep();
      return void newPassword();
    }
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
at("resend").addEventListener("click", () => run("resend", () =>
  mode === "sign-up" && login.completed === 0 ? sendToNew(login.code.to) : send(login.code.to, login.code.contact)));
at("have").addEventListener("click", () => busy || code());
at("other").addEventListener("click", () => busy || choose());
at("another").addEventListener("click", () => busy || who());
at("restart").addEventListener("click", () => busy || restart());
at("cancel").addEventListener("click", () => busy || location.assign(new URL("security", ACCOUNT)));
at("reveal").addEventListener("change", (event) => { at("secret").type = event.target.checked ? "text" : "password"; });
at("new-reveal").addEventListener("change", (event) => { at("new-secret").type = event.target.checked ? "text" : "password"; });
at("remember").addEventListener("change", () => suggesting?.abort());
at("to-reset").addEventListener("click", () => store(RESET_KEY, { query: location.search, identifier: login.identifier || at("identifier").value.trim() }));
// another address need not wait
at("join-to").addEventListener("input", () => {
  login.until.email = 0;
  if (login.id) keep();
});
document.addEventListener("visibilitychange", () => suggest());

run(null, begin);
