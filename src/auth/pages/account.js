// The page on which signed-in users manage how they sign in and where they are signed in.
const here = new URL(".", import.meta.url);
const KEY = `account ${here.pathname}`;
const at = (id) => document.getElementById(id);

const NEEDS_SECOND_FACTOR = "Codes are a second step. Your account has only one way to sign in, so it cannot use them yet. Please contact your administrator.";

// Every other error is shown with its code.
const WORDS = {
  invalid_otp: "The code is wrong. Enter the code that the app shows now.",
  invalid_assertion: "This passkey could not be added. Please try again.",
  no_pending_challenge: "That took too long. Please start again.",
  exists: "This device already has a passkey for your account.",
  no_passkey: "No passkey was added. Please try again.",
  not_found: "It does not exist any more.",
  second_factor_required: NEEDS_SECOND_FACTOR,
  last_sign_in_method: "This is your last way to sign in. Add another one before you remove it.",
  access_denied: "This is not possible right now. Please contact your administrator.",
  rate_limit_exceeded: "The service is busy right now. Please try again.",
  too_many_attempts: "There were too many attempts. Please try again later.",
  slow_down: "That was too fast. Please try again.",
  temporarily_unavailable: "The service is temporarily unavailable. Please try again.",
  unreachable: "The server cannot be reached. Check your connection and try again.",
};
const hasPasskeys = Boolean(globalThis.PublicKeyCredential?.parseCreationOptionsFromJSON);
let account = null; // the last answer of `credentials`
let busy = false;
let pressed = ""; // the button of the current action
let loginUrl = ""; // where users prove again that it is them

async function call(path, body) {
  const headers = { accept: "application/json" };
  if (body) headers["content-type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(new URL(path, here), {
      method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body),
      redirect: "error", cache: "no-store", signal: AbortSignal.timeout(30_000),
    });
    const text = await response.text();
    answer = text ? JSON.parse(text) : {};
  } catch { /* no answer, or not from our server */ }
  if (response?.ok && answer) return answer;
  const code = answer?.error ?? { 429: "rate_limit_exceeded", 503: "temporarily_unavailable" }[response?.status];
  throw { code: code ?? "unreachable", login_url: answer?.login_url };
}

// ---- what the page shows

function element(tag, properties, ...children) {
  const it = Object.assign(document.createElement(tag), properties);
  it.append(...children);
  return it;
}

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const minute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const date = (seconds) => day.format(seconds * 1000);
const time = (seconds) => minute.format(seconds * 1000);

function button(label, spoken, act, className = "quiet") {
  const it = element("button", { type: "button", textContent: label, className });
  it.setAttribute("aria-label", spoken);
  it.addEventListener("click", act);
  return it;
}

function item(name, about, ...buttons) {
  const text = element("div", { className: "about" }, element("strong", { textContent: name }), element("span", { textContent: about }));
  return element("li", {}, text, element("div", { className: "row" }, ...buttons));
}

function passkeyItem(passkey) {
  const { id, name, created_at: created, last_used_at: used, backed_up: isSynced } = passkey;
  const about = [`Added ${date(created)}`, used ? `last used ${time(used)}` : "never used", ...(isSynced ? ["synced between your devices"] : [])].join(", ");
  const rename = button("Rename", `Rename ${name}`, () => renaming(row, passkey));
  const row = item(name, about, rename, button("Delete", `Delete ${name}`, () =>
    ask(`Delete the passkey ${name}? You then cannot sign in with it any more.`, "Delete", () =>
      change("passkeys/delete", { id }, "The passkey was deleted.", "passkeys-title")), "danger"));
  return row;
}

// Replaces the entry of a passkey with a form.
function renaming(row, { id, name }) {
  const input = element("input", { value: name, required: true, maxLength: 64, autocomplete: "off" });
  const cancel = button("Cancel", "Cancel", () => run(show));
  const form = element("form", {}, element("label", { textContent: "Name " }, input), element("button", { textContent: "Save" }), cancel);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(() => change("passkeys/rename", { id, name: input.value.trim() }, "The passkey was renamed.", "passkeys-title"));
  });
  row.replaceChildren(form);
  input.select();
}

function sessionItem({ sid, current, device, created_at: created, last_used_at: used }) {
  const name = `${device || "Unknown device"}${current ? " (this one)" : ""}`;
  const about = `Signed in ${time(created)}, last used ${time(used)}`;
  return item(name, about, button("Sign out", `Sign out ${name}`, () => run(() => (current
    ? leave("sessions/end", { sid })
    : change("sessions/end", { sid }, "The device was signed out.", "sessions-title")))));
}

function linkItem({ id, label, name, created_at: created }) {
  return item(label, `${name ? `${name}, ` : ""}linked ${date(created)}`, button("Unlink", `Unlink ${label}`, () =>
    ask(`Unlink ${label}? You then cannot sign in with it any more.`, "Unlink", () =>
      change("links/delete", { id }, `${label} was unlinked.`, "links-title")), "danger"));
}

async function show() {
  account = await call("credentials");
  const { passkeys, totp, recovery_codes: codes, links, sessions, available } = account;
  const hasTwoFactors = account.required_proofs > 1;
  const name = account.display_name || account.user;
  at("user").textContent = `Signed in as ${name}`;
  at("passkeys").replaceChildren(...passkeys.map(passkeyItem));
  at("passkeys").parentElement.hidden = !available.passkey;
  at("add-passkey").hidden = !hasPasskeys;
  at("totp").hidden = !available.totp;
  at("totp-setup").hidden = true;
  at("totp-state").textContent = totp
    ? `Set up ${date(totp.created_at)}. You can sign in with the codes of your app as a second step.`
    : hasTwoFactors ? "An app on your phone shows codes that you enter as a second step." : NEEDS_SECOND_FACTOR;
  at("totp-begin").hidden = !hasTwoFactors;
  at("totp-begin").textContent = totp ? "Replace" : "Set up";
  at("totp-delete").hidden = !totp;
  at("recovery").hidden = !available.totp || (!codes && !hasTwoFactors);
  at("recovery-create").hidden = !hasTwoFactors || !at("recovery-new").hidden;
  at("recovery-state").textContent = codes
    ? `${codes.remaining} of 10 codes are left. They were created ${date(codes.created_at)}.`
    : "Recovery codes help you to sign in if you lose your phone. You have none.";
  at("links-list").replaceChildren(...links.map(linkItem));
  at("links").hidden = links.length === 0;
  at("sessions").replaceChildren(...sessions.map(sessionItem));
  at("end-others").hidden = sessions.length < 2;
  at("all").hidden = false;
}

// ---- actions

// Asks before an action that cannot be undone.
function ask(question, label, action, id) {
  at("question").textContent = question;
  at("yes").textContent = label;
  const dialog = at("ask");
  dialog.returnValue = "";
  dialog.onclose = () => dialog.returnValue && run(action, id);
  dialog.showModal();
}

// Changes something, shows the new state, and moves the focus.
async function change(path, body, words, focus) {
  const answer = await call(path, body);
  await show();
  at("done").textContent = words;
  at(focus).focus();
  return answer;
}

async function addPasskey() {
  const { publicKey } = await call("passkeys/options", {});
  let response;
  try {
    const options = PublicKeyCredential.parseCreationOptionsFromJSON(publicKey);
    response = (await navigator.credentials.create({ publicKey: options })).toJSON();
  } catch (error) {
    throw { code: error.name === "InvalidStateError" ? "exists" : "no_passkey" };
  }
  const name = navigator.userAgentData?.platform || "Passkey";
  await change("passkeys", { name, response }, "The passkey was added. You can sign in with it from now on.", "add-passkey");
}

async function beginTotp() {
  const { secret, uri, qr_svg: picture } = await call("totp/begin", {});
  const svg = new DOMParser().parseFromString(picture, "image/svg+xml").documentElement;
  at("totp-qr").replaceChildren(document.importNode(svg, true));
  at("totp-secret").textContent = secret.replace(/(.{4})(?=.)/g, "$1 ");
  at("totp-link").href = uri;
  at("totp-code").value = "";
  at("totp-setup").hidden = false;
  at("totp-begin").hidden = true;
  at("totp-delete").hidden = true;
  at("totp-code").focus();
}

async function confirmTotp() {
  const code = at("totp-code").value.replace(/[\s-]/g, "");
  at("totp-code").value = "";
  await change("totp", { code }, "The authenticator app was set up.", "totp-begin");
  at("totp-qr").replaceChildren();
  at("totp-secret").textContent = "";
}

async function createCodes() {
  const { codes } = await call("recovery-codes", {});
  await show();
  at("codes").replaceChildren(...codes.map((code) => element("li", {}, element("code", { textContent: code }))));
  withCodes(true);
  at("done").textContent = "Your new codes were created.";
  at("codes-copy").focus();
}

function withCodes(areShown) {
  at("recovery-new").hidden = !areShown;
  at("recovery-create").hidden = areShown;
  document.querySelector("main").classList.toggle("has-codes", areShown);
  if (!areShown) at("codes").replaceChildren();
}

async function copyCodes() {
  const text = Array.from(at("codes").children, (line) => line.textContent).join("\n");
  try {
    await navigator.clipboard.writeText(text);
    at("done").textContent = "The codes were copied.";
  } catch {
    getSelection().selectAllChildren(at("codes"));
    at("done").textContent = "The codes are selected. Copy them now.";
  }
}

// Signs out of this browser.
async function leave(path, body) {
  await call(path, body);
  location.replace(signIn());
}

const signIn = () => new URL(`../sign-in?return_to=${encodeURIComponent(location.pathname)}`, here);

// ---- errors

// Explains why the user must sign in again.
function confirmFirst(url) {
  loginUrl = url ?? signIn();
  at("confirm").hidden = false;
  at("confirm-go").focus();
}

at("confirm-go").addEventListener("click", () => {
  // the user finds the button again afterwards
  sessionStorage.setItem(KEY, pressed);
  location.assign(loginUrl);
});
at("confirm-cancel").addEventListener("click", () => {
  at("confirm").hidden = true;
  at(pressed)?.focus();
});

// Runs one action at a time and ignores others meanwhile.
async function run(action, id = "") {
  if (busy) return;
  busy = true;
  pressed = id;
  document.body.setAttribute("aria-busy", "true");
  at("message").textContent = at("done").textContent = "";
  at("confirm").hidden = true;
  try {
    await action();
  } catch (thrown) {
    const { code = "internal", login_url: url } = thrown ?? {};
    if (code === "fresh_login_required") confirmFirst(url);
    else if (["login_required", "invalid_session"].includes(code)) location.replace(signIn());
    else at("message").textContent = WORDS[code] ?? `Something went wrong. Please reload the page. (${code})`;
  }
  busy = false;
  document.body.removeAttribute("aria-busy");
}

const CLICKS = {
  "add-passkey": addPasskey,
  "totp-begin": beginTotp,
  "totp-cancel": async () => {
    await show();
    at("totp-begin").focus();
  },
  "end-others": () => change("sessions/end-others", {}, "All other devices were signed out.", "sessions-title"),
};
for (const [id, action] of Object.entries(CLICKS)) at(id).addEventListener("click", () => run(action, id));

const QUESTIONS = {
  "totp-delete": ["Remove the authenticator app? Its codes then stop working.", "Remove",
    () => change("totp/delete", {}, "The authenticator app was removed.", "totp-begin")],
  "sign-out-everywhere": ["Sign out on all devices, including this one?", "Sign out everywhere",
    () => leave("sign-out-everywhere", {})],
};
for (const [id, [question, label, action]] of Object.entries(QUESTIONS)) {
  at(id).addEventListener("click", () => ask(question, label, action, id));
}
at("recovery-create").addEventListener("click", () => {
  if (account.recovery_codes) ask("Create new codes? The old ones then stop working.", "Create", createCodes, "recovery-create");
  else run(createCodes, "recovery-create");
});
at("totp-setup").addEventListener("submit", (event) => {
  event.preventDefault();
  run(confirmTotp);
});
at("codes-copy").addEventListener("click", copyCodes);
at("codes-print").addEventListener("click", () => print());
at("codes-done").addEventListener("click", () => {
  withCodes(false);
  at("recovery-create").focus();
});

await run(show);
const next = sessionStorage.getItem(KEY);
sessionStorage.removeItem(KEY);
if (account && next !== null) {
  at("done").textContent = "Thank you. You can now continue.";
  at(next)?.focus();
}
