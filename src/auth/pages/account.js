// The page on which signed-in users manage how they sign in and where they are signed in.
const here = new URL(".", import.meta.url);
const KEY = `account ${here.pathname}`;
const at = (id) => document.getElementById(id);

const NEEDS_SECOND_FACTOR = "Codes are a second step. Your account has no first step that they could follow. Please contact your administrator.";
const NOT_ENOUGH = "That was not enough. First sign in with your password or a code, then confirm with your passkey or app.";

// Every other error is shown with its code.
const WORDS = {
  invalid_otp: "The code is wrong. Enter the code that the app shows now.",
  invalid_assertion: "This passkey could not be added. Please try again.",
  no_pending_challenge: "That took too long. Please start again.",
  bad_name: "Enter a name of 1 to 64 characters, not only spaces.",
  exists: "This device already has a passkey for your account.",
  no_passkey: "No passkey was added. Please try again.",
  not_found: "It does not exist any more.",
  last_sign_in_method: "This is your last way to sign in. Add another one before you remove it.",
  access_denied: "This is not possible right now. Please contact your administrator.",
  rate_limit_exceeded: "The service is busy right now. Please try again.",
  too_many_attempts: "There were too many attempts. Please try again later.",
  slow_down: "That was too fast. Please try again.",
  temporarily_unavailable: "The service is temporarily unavailable. Please try again.",
  provider_unavailable: "That provider cannot be reached right now. Please try again later.",
  unreachable: "The server cannot be reached. Check your connection and try again.",
};

// How connecting an account of another provider ended. The browser then comes back to this page.
const linked = /^#link=(\w+)$/.exec(location.hash)?.[1];
if (linked) history.replaceState(null, "", location.pathname + location.search);
const LINKED = {
  ok: "The account was connected. You can sign in with it from now on.",
  known: "That account was connected with yours before.",
  taken: "That account is connected with another user here, so it cannot be connected with you.",
  too_many: "You have the maximum number of linked accounts. Unlink one first.",
  denied: "The sign-in at the other provider was cancelled. Nothing was connected.",
  stale: "That provider did not ask you to sign in again, so nothing was connected. Sign out there, then try again.",
  unavailable: WORDS.provider_unavailable,
  expired: "That took too long, so nothing was connected. Please try again.",
  failed: "Signing in there did not work, so nothing was connected. Please try again.",
};
const hasPasskeys = Boolean(globalThis.PublicKeyCredential?.parseCreationOptionsFromJSON);
let account = null; // the last answer of `credentials`
let busy = false;
let pressed = ""; // the button of the current action

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

function button(label, spoken, act, className = "quiet", id = "") {
  const it = element("button", { type: "button", textContent: label, className, id });
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
      change("passkeys/delete", { id }, "The passkey was deleted.", "passkeys-title"), `passkey ${id}`), "danger", `passkey ${id}`));
  return row;
}

// Replaces the entry of a passkey with a form.
function renaming(row, { id, name }) {
  const input = element("input", { value: name, required: true, maxLength: 64, autocomplete: "off" });
  const cancel = button("Cancel", "Cancel", () => run(show));
  const form = element("form", {}, element("label", { textContent: "Name " }, input), element("button", { textContent: "Save" }), cancel);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = input.value.trim();
    run(async () => {
      try {
        await change("passkeys/rename", { id, name }, "The passkey was renamed.", "passkeys-title");
      } catch (thrown) {
        if (thrown.code !== "invalid_request") throw thrown;
        input.select();
        throw { code: "bad_name" };
      }
    });
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

function linkItem({ id, label, name, created_at: created, ends_session: endsSession }) {
  const ends = endsSession ? " You have signed in with it, so you will be signed out here." : "";
  return item(label, `${name ? `${name}, ` : ""}linked ${date(created)}`, button("Unlink", `Unlink ${label}`, () =>
    ask(`Unlink ${label}? You then cannot sign in with it any more.${ends}`, "Unlink", () =>
      change("links/delete", { id }, `${label} was unlinked.`, "links-title"), `link ${id}`), "danger", `link ${id}`));
}

function connectButton({ name, label }) {
  const id = `connect-${name}`;
  return button(`Connect ${label}`, `Connect ${label}`, () => run(() => connect(name, label), id), "quiet", id);
}

async function show() {
  account = await call("credentials");
  const { passkeys, totp, recovery_codes: codes, links, sessions, available } = account;
  const hasTwoFactors = account.has_two_factors;
  const canUseApp = account.can_use_codes;
  WORDS.second_factor_required = canUseApp ? NOT_ENOUGH : NEEDS_SECOND_FACTOR;
  at("second-asks").hidden = !account.asks_factor;
  at("second").hidden = account.required_proofs > 1 || !(canUseApp && (available.passkey || available.totp));
  const name = account.display_name || account.user;
  at("user").textContent = `Signed in as ${name}`;
  at("passkeys").replaceChildren(...passkeys.map(passkeyItem));
  at("passkeys").parentElement.hidden = !available.passkey;
  at("add-passkey").hidden = !hasPasskeys;
  at("totp").hidden = !available.totp;
  at("totp-setup").hidden = true;
  at("totp-state").textContent = totp
    ? `Set up ${date(totp.created_at)}. You can sign in with the codes of your app as a second step.`
    : canUseApp ? "An app on your phone shows codes that you enter as a second step." : NEEDS_SECOND_FACTOR;
  at("totp-begin").hidden = !canUseApp;
  at("totp-begin").textContent = totp ? "Replace" : "Set up";
  at("totp-delete").hidden = !totp;
  at("recovery").hidden = !available.totp || (!codes && !hasTwoFactors);
  at("recovery-create").hidden = !hasTwoFactors || !at("recovery-new").hidden;
  at("recovery-state").textContent = codes
    ? `${codes.remaining} of 10 codes are left. They were created ${date(codes.created_at)}.`
    : "Recovery codes help you to sign in if you lose your phone. You have none.";
  at("links-list").replaceChildren(...links.map(linkItem));
  at("links-add").replaceChildren(...available.providers.map(connectButton));
  at("links-state").textContent = links.length > 0
    ? "You can sign in with these accounts of other providers."
    : "Connect an account of another provider to sign in with it.";
  at("links").hidden = links.length + available.providers.length === 0;
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
  // not the button that deletes
  at("no").focus();
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
  await add("passkeys", { response }, "The passkey was added. You can sign in with it from now on.", "the passkey", "add-passkey");
}

// Adds a passkey or an app, suggests recovery codes, and tells what the first one changes.
async function add(path, body, words, what, focus) {
  const isFirst = !account.totp && !account.passkeys.length;
  await change(path, body, words, focus);
  if (!account.recovery_codes && at("recovery-create").offsetParent) {
    at("done").textContent += ` Create recovery codes now, so that you can sign in if you lose ${what}.`;
    at("recovery-create").focus();
  }
  if (isFirst && account.asks_factor) at("done").textContent += ` From now on, each sign-in asks for ${what}.`;
}

// Leaves for the page of another provider.
async function connect(provider, label) {
  const { redirect_url: to } = await call("links/begin", { provider });
  at("done").textContent = `Taking you to ${label} …`;
  location.assign(to);
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
  await add("totp", { code }, "The authenticator app was set up.", "the app", "totp-begin");
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

// ---- fresh proofs

// Leaves for a page on which the user confirms that it is them, and continues with the pressed button afterwards.
function confirmFirst(url) {
  sessionStorage.setItem(KEY, JSON.stringify({ pressed, user: account.user, isWhole: url?.includes("max_age=0&") }));
  location.assign(url ?? signIn());
}

// Continues after the user came back, unless they came back without proofs or as somebody else.
function proceed() {
  const kept = JSON.parse(sessionStorage.getItem(KEY));
  sessionStorage.removeItem(KEY);
  if (kept?.user !== account.user) return;
  if (!account.fresh_until) return void (at("message").textContent = kept.isWhole ? NOT_ENOUGH : "");
  at("done").textContent = "Thank you. You can now continue.";
  at(kept.pressed)?.focus();
  at(kept.pressed)?.click();
}

// Runs one action at a time and ignores others meanwhile.
async function run(action, id = "") {
  if (busy) return;
  busy = true;
  pressed = id;
  document.body.setAttribute("aria-busy", "true");
  at("message").textContent = at("done").textContent = "";
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
  // a key that was not confirmed in time is replaced
  run(confirmTotp, "totp-begin");
});
at("codes-copy").addEventListener("click", copyCodes);
at("codes-print").addEventListener("click", () => print());
at("codes-done").addEventListener("click", () => {
  withCodes(false);
  at("recovery-create").focus();
});

await run(show);
if (account && linked) {
  sessionStorage.removeItem(KEY);
  at(linked === "ok" ? "done" : "message").textContent = LINKED[linked] ?? LINKED.failed;
  at("links-title").focus();
} else if (account) proceed();
