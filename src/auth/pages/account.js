// The page on which signed-in users manage how they sign in and where they are signed in.
const here = new URL(".", import.meta.url);
const KEY = `account ${here.pathname}`;
const NOTE = `${KEY} note`; // for the login page, or from it
const at = (id) => document.getElementById(id);

// The words of this page in the language of the user.
const words = JSON.parse(at("words").textContent);
const word = (key, values = {}) => words[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);

// Returns what an error means. It is shown with its code if there are no words for it.
function problem(code) {
  if (code === "second_factor_required") return word(account?.can_use_codes ? "account.not_enough" : "account.needs_first_step");
  return words[`account.error_${code}`] ?? words[`shared.error_${code}`]?.replace("{count}", account?.least_password) ?? word("account.error_other", { code });
}

const LATER = ["too_many_attempts", "slow_down", "rate_limit_exceeded"];

// Returns how long to wait, in whole units.
function span(seconds) {
  const [unit, value] = seconds < 90 ? ["second", seconds] : seconds < 5400 ? ["minute", seconds / 60] : ["hour", seconds / 3600];
  return new Intl.NumberFormat(locale, { style: "unit", unit, unitDisplay: "long" }).format(Math.ceil(value));
}

// How connecting an account of another provider ended. The browser then comes back to this page.
const linked = /^#link=(\w+)$/.exec(location.hash)?.[1];
if (linked) history.replaceState(null, "", location.pathname + location.search);
const hasPasskeys = Boolean(globalThis.PublicKeyCredential?.parseCreationOptionsFromJSON);
let account = null; // the last answer of `credentials`
let busy = false;
let pressed = ""; // the button of the current action
let isAgreed = false; // the user was asked about the current action
let answered = ""; // the button whose question was answered before the user confirmed that it is them
const ANSWER_COUNTS = 600_000; // milliseconds

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
  throw { code: code ?? "unreachable", login_url: answer?.login_url, wait: Number(answer?.retry_after ?? response?.headers.get("retry-after")) };
}

// ---- what the page shows

function element(tag, properties, ...children) {
  const it = Object.assign(document.createElement(tag), properties);
  it.append(...children);
  return it;
}

// Shows a text. An address of this site in it becomes a link, which leaves this page open.
function showText(it, text) {
  it.replaceChildren(...text.split(/(\s+|[.,]+(?=\s|$))/).map((part) => part.startsWith(`${location.origin}/`)
    ? element("a", { href: part, target: "_blank", textContent: part })
    : part));
}

const { lang } = document.documentElement;
const locale = navigator.languages.find((it) => it.split("-")[0] === lang) ?? lang;
const day = new Intl.DateTimeFormat(locale, { dateStyle: "medium" });
const minute = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const date = (seconds) => day.format(seconds * 1000);
const time = (seconds) => minute.format(seconds * 1000);

function button(label, spoken, act, className = "quiet", id = "") {
  const it = element("button", { type: "button", textContent: label, className, ...(id && { id }) });
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
  const about = [
    word("account.added", { date: date(created) }),
    used ? word("account.last_used", { time: time(used) }) : word("account.never_used"),
    ...(isSynced ? [word("account.synced")] : []),
  ].join(", ");
  const rename = button(word("account.rename"), word("account.rename_of", { name }), () => renaming(row, passkey));
  const row = item(name, about, rename, button(word("account.delete"), word("account.delete_of", { name }), () =>
    ask(word("account.delete_passkey", { name }), word("account.delete"), () =>
      change("passkeys/delete", { id }, word("account.passkey_deleted"), "passkeys-title"), `passkey ${id}`), "danger", `passkey ${id}`));
  return row;
}

// Replaces the entry of a passkey with a form.
function renaming(row, { id, name }) {
  const input = element("input", { value: name, required: true, maxLength: 64, autocomplete: "off" });
  const cancel = button(word("shared.cancel"), word("shared.cancel"), () => run(show));
  const form = element("form", {}, element("label", { textContent: `${word("account.name")} ` }, input),
    element("button", { textContent: word("account.save") }), cancel);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = input.value.trim();
    run(async () => {
      try {
        await change("passkeys/rename", { id, name }, word("account.passkey_renamed"), "passkeys-title");
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

function deviceName(device) {
  const [browser, system] = device.split(" on ");
  return system ? word("account.device", { browser, system }) : browser;
}

function sessionItem({ sid, current, device, created_at: created, last_used_at: used }) {
  const known = device ? deviceName(device) : word("account.session_unknown");
  const name = current ? word("account.session_current", { device: known }) : known;
  const about = word("account.session_times", { begun: time(created), used: time(used) });
  return item(name, about, button(word("account.session_end"), word("account.session_end_of", { device: name }), () => run(() => (current
    ? leave("sessions/end", { sid })
    : change("sessions/end", { sid }, word("account.session_ended"), "sessions-title")))));
}

function contactItem({ id, kind, masked, verified }) {
  const { [kind]: canChange } = account.changes;
  const change = button(word("account.contact_replace"), word("account.contact_replace_of", { contact: masked }),
    () => run(() => beginContact(kind, id), `contact-${id}`), "quiet", `contact-${id}`);
  const name = word(kind === "email" ? "account.email_of" : "account.phone_of", { contact: masked });
  return item(name, verified ? "" : word("account.contact_unverified"), ...(canChange ? [change] : []));
}

function linkItem({ id, label, name, created_at: created, ends_session: endsSession }) {
  const ends = endsSession ? ` ${word("account.unlink_ends")}` : "";
  const about = [...(name ? [name] : []), word("account.linked", { date: date(created) })].join(", ");
  return item(label, about, button(word("account.unlink"), word("account.unlink_of", { provider: label }), () =>
    ask(word("account.unlink_question", { provider: label }) + ends, word("account.unlink"), () =>
      change("links/delete", { id }, word("account.unlinked", { provider: label }), "links-title"), `link ${id}`), "danger", `link ${id}`));
}

function consentItem({ client_id: client, client_name: name, given_at: given, scopes, claims, resources }) {
  const access = [...scopes.map((scope) => words[`login.scope_${scope}`] ?? scope), ...claims, ...resources].join(", ");
  const about = `${word("account.consent_may", { access })}. ${word("account.consent_given", { date: date(given) })}`;
  return item(name, about, button(word("account.consent_revoke"), word("account.consent_revoke_of", { client: name }), () =>
    ask(word("account.consent_question", { client: name }), word("account.consent_revoke"), () =>
      change("consents/revoke", { client_id: client }, word("account.consent_revoked", { client: name }), "sessions-title"),
    `consent ${client}`), "danger", `consent ${client}`));
}

function connectButton({ name, label }) {
  const id = `connect-${name}`;
  const text = word("account.connect", { provider: label });
  return button(text, text, () => run(() => connect(name, label), id), "quiet", id);
}

async function show() {
  account = await call("credentials");
  const { passkeys, totp, recovery_codes: codes, links, sessions, consents, available } = account;
  const { has_two_factors: hasTwoFactors, can_use_codes: canUseApp, asks_factor: isAsked } = account;
  const hasFactor = Boolean(totp) || passkeys.length > 0;
  const hasOne = account.required_proofs <= 1 && canUseApp;
  at("second").textContent = word(!hasOne ? "account.factor_asks" : isAsked ? "account.one_factor_asked" : "account.one_factor");
  at("second").hidden = !(available.passkey || available.totp) || !(hasOne || (isAsked && !hasFactor));
  const name = account.display_name || account.user;
  at("user").textContent = word("account.signed_in_as", { name });
  showProfile();
  at("passkeys").replaceChildren(...passkeys.map(passkeyItem));
  at("passkeys").parentElement.hidden = !available.passkey;
  at("add-passkey").hidden = !hasPasskeys;
  at("totp").hidden = !available.totp;
  at("totp-setup").hidden = true;
  at("totp-state").textContent = totp
    ? word("account.app_state", { date: date(totp.created_at) })
    : word(canUseApp ? "account.app_note" : "account.needs_first_step");
  at("totp-begin").hidden = !canUseApp;
  at("totp-begin").textContent = word(totp ? "account.app_replace" : "account.app_set_up");
  at("totp-delete").hidden = !totp;
  at("recovery").hidden = !available.totp || (!codes && !hasTwoFactors);
  at("recovery-create").hidden = !hasTwoFactors || !at("recovery-new").hidden;
  at("recovery-create").className = hasFactor ? "" : "quiet";
  at("recovery-state").textContent = codes
    ? word("account.codes_left", { count: codes.remaining, date: date(codes.created_at) })
    : word("account.codes_none");
  at("links-list").replaceChildren(...links.map(linkItem));
  at("links-add").replaceChildren(...available.providers.map(connectButton));
  at("links-state").textContent = word(links.length > 0 ? "account.links_some" : "account.links_none");
  at("links").hidden = links.length + available.providers.length === 0;
  at("consents-list").replaceChildren(...consents.map(consentItem));
  at("consents").hidden = consents.length === 0;
  at("sessions").replaceChildren(...[...sessions].sort((a, b) => b.current - a.current).map(sessionItem));
  at("end-others").hidden = sessions.length < 2;
  at("all").hidden = false;
}

// Hides the changes that the service does not offer.
function showProfile() {
  const { changes, contacts, has_password: hasPassword, has_two_factors: hasTwoFactors, least_password: count } = account;
  at("name-form").hidden = !changes.name;
  at("full-name").value = account.name ?? "";
  at("contacts").replaceChildren(...contacts.map(contactItem));
  at("contact-form").hidden = at("contact-proof").hidden = true;
  const canAdd = (kind) => changes[kind] && !contacts.some((contact) => contact.kind === kind);
  at("add-email").hidden = !canAdd("email");
  at("add-phone").hidden = !canAdd("phone");
  at("profile").hidden = !changes.name && !contacts.length && !canAdd("email") && !canAdd("phone");
  at("password").hidden = !changes.password || !(hasPassword || hasTwoFactors);
  at("password-state").textContent = word(hasPassword ? "account.password_state" : "account.password_none");
  at("password-hint").textContent = word("shared.password_hint", { count });
  at("password-begin").textContent = word(hasPassword ? "account.password_change" : "account.password_set");
  at("password-form").hidden = true;
  at("password-begin").hidden = false;
  at("deletion").hidden = !changes.delete;
}

// ---- actions

// Asks before an action that cannot be undone, once.
function ask(question, label, action, id) {
  if (answered === id) return run(action, id, true);
  at("question").textContent = question;
  at("yes").textContent = label;
  const dialog = at("ask");
  dialog.returnValue = "";
  dialog.onclose = () => dialog.returnValue && run(action, id, true);
  dialog.showModal();
  // not the button that deletes
  at("no").focus();
}

// Changes something, shows the new state, and moves the focus.
async function change(path, body, message, focus) {
  const answer = await call(path, body);
  await show();
  at("done").textContent = message;
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
  await add("passkeys", { response }, "passkey", "add-passkey");
}

// Adds a passkey or an app, suggests recovery codes, and tells what the first one changes.
async function add(path, body, kind, focus) {
  const [added, suggestion, asked] = {
    passkey: ["account.passkey_added", "account.passkey_suggest_codes", "account.passkey_asked"],
    app: ["account.app_added", "account.app_suggest_codes", "account.app_asked"],
  }[kind];
  const isFirst = !account.totp && !account.passkeys.length;
  await change(path, body, word(added), focus);
  if (!account.recovery_codes && at("recovery-create").offsetParent) {
    at("done").textContent += ` ${word(suggestion)}`;
    at("recovery-create").focus();
  }
  if (isFirst && account.asks_factor) at("done").textContent += ` ${word(asked)}`;
}

// Leaves for the page of another provider.
async function connect(provider, label) {
  const { redirect_url: to } = await call("links/begin", { provider });
  at("done").textContent = word("shared.taking_you_to", { place: label });
  location.assign(to);
}

// Asks for fresh proofs before the user types anything.
async function requireFresh() {
  await show();
  if (!account.fresh_until) throw { code: "fresh_login_required", login_url: account.fresh_login_url };
}

let newContact = null; // what the open forms are about, and the button that opens them
let typedBefore = ""; // what the user had typed before they confirmed that it is them

async function beginContact(kind, id) {
  const [input, type] = [at("contact-value"), kind === "email" ? "email" : "tel"];
  newContact = { kind, id, type, begin: pressed };
  [input.value, typedBefore] = [typedBefore, ""];
  await requireFresh();
  at("contact-label").textContent = word(kind === "email" ? "account.contact_new_email" : "account.contact_new_phone");
  Object.assign(input, { type, autocomplete: type });
  at("contact-form").hidden = false;
  at("contact-proof").hidden = true;
  input.focus();
}

async function sendContactCode() {
  const { kind, id } = newContact;
  const contact = at("contact-value").value.trim();
  try {
    await call("contacts/begin", { [kind === "email" ? "email" : "phone_number"]: contact, ...(id && { contact_id: id }) });
  } catch (thrown) {
    if (thrown.code === "invalid_request") throw { code: `bad_${kind}` };
    if (thrown.code === "second_factor_required") throw { code: "no_other_way" };
    if (thrown.code === "too_many_attempts") throw { ...thrown, code: "too_many_codes" };
    throw thrown;
  }
  at("contact-form").hidden = true;
  showText(at("contact-sent"), word("account.contact_sent", { contact }));
  at("contact-code").value = "";
  at("contact-proof").hidden = false;
  at("contact-code").focus();
}

async function resendContactCode() {
  pressed = newContact.begin;
  await sendContactCode();
  at("done").textContent = word("account.contact_sent_again");
}

async function confirmContact() {
  const code = at("contact-code").value.replace(/[\s-]/g, "");
  try {
    await change("contacts", { code }, word("account.contact_changed"), "profile-title");
  } catch (thrown) {
    at("contact-code").select();
    const codes = { invalid_otp: "bad_code", invalid_request: "too_many_contacts" };
    throw codes[thrown.code] ? { code: codes[thrown.code] } : thrown;
  }
}

async function beginPassword() {
  await requireFresh();
  at("password-user").value = account.display_name || account.user;
  at("new-password").value = "";
  at("password-begin").hidden = true;
  at("password-form").hidden = false;
  at("new-password").focus();
}

async function setPassword() {
  const input = at("new-password");
  try {
    await change("password", { new_password: input.value }, word("account.password_changed"), "password-title");
    input.value = "";
  } catch (thrown) {
    input.select();
    throw thrown;
  }
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
  await add("totp", { code }, "app", "totp-begin");
  at("totp-qr").replaceChildren();
  at("totp-secret").textContent = "";
}

async function createCodes() {
  const { codes } = await call("recovery-codes", {});
  await show();
  at("codes").replaceChildren(...codes.map((code) => element("li", {}, element("code", { textContent: code }))));
  withCodes(true);
  at("done").textContent = word("account.codes_created");
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
    at("done").textContent = word("account.codes_copied");
  } catch {
    getSelection().selectAllChildren(at("codes"));
    at("done").textContent = word("account.codes_selected");
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
  // codes to a contact vouch for no other one of its kind
  const contact = newContact?.begin === pressed ? { besides: newContact.type, typed: at("contact-value").value } : {};
  const isWhole = url?.includes("max_age=0&");
  sessionStorage.setItem(KEY, JSON.stringify({ pressed, user: account.user, isWhole, agreed: isAgreed && Date.now(), ...contact }));
  location.assign(url ?? signIn());
}

// Continues after the user came back, unless they came back without proofs or as somebody else.
function proceed() {
  const kept = JSON.parse(sessionStorage.getItem(KEY));
  sessionStorage.removeItem(KEY);
  if (kept?.user !== account.user) return;
  if (!account.fresh_until) return void (at("message").textContent = kept.isWhole ? word("account.not_enough") : "");
  at("done").textContent = word("account.thank_you");
  typedBefore = kept.typed ?? "";
  at(kept.pressed)?.focus();
  answered = Date.now() - kept.agreed < ANSWER_COUNTS ? kept.pressed : "";
  at(kept.pressed)?.click();
  answered = "";
}

// Runs one action at a time and ignores others meanwhile. `hasAgreed` tells whether the user was asked.
async function run(action, id = "", hasAgreed = false) {
  if (busy) return;
  busy = true;
  [pressed, isAgreed] = [id, hasAgreed];
  document.body.setAttribute("aria-busy", "true");
  at("message").textContent = at("done").textContent = "";
  try {
    await action();
  } catch (thrown) {
    const { code = "internal", login_url: url, wait } = thrown ?? {};
    if (code === "fresh_login_required") confirmFirst(url);
    else if (["login_required", "invalid_session"].includes(code)) {
      if (account) sessionStorage.setItem(NOTE, JSON.stringify("ended"));
      location.replace(signIn());
    }
    else if (wait > 1) at("message").textContent = `${problem(code)} ${word("account.wait", { time: span(wait) })}`;
    else at("message").textContent = wait >= 0 && LATER.includes(code) ? `${problem(code)} ${word("account.again")}` : problem(code);
  }
  busy = false;
  document.body.removeAttribute("aria-busy");
}

const cancelled = (focus) => async () => {
  await show();
  at(focus).focus();
};

const CLICKS = {
  "add-passkey": addPasskey,
  "add-email": () => beginContact("email"),
  "add-phone": () => beginContact("phone"),
  "contact-resend": resendContactCode,
  "contact-cancel": cancelled("profile-title"),
  "proof-cancel": cancelled("profile-title"),
  "password-begin": beginPassword,
  "password-cancel": cancelled("password-begin"),
  "totp-begin": beginTotp,
  "totp-cancel": cancelled("totp-begin"),
  "end-others": () => change("sessions/end-others", {}, word("account.sessions_ended"), "sessions-title"),
};
for (const [id, action] of Object.entries(CLICKS)) at(id).addEventListener("click", () => run(action, id));

const isLastFactor = () => account.asks_factor && account.has_password && !account.passkeys.length;
const QUESTIONS = {
  "totp-delete": [() => (isLastFactor() ? "account.app_remove_last_question" : "account.app_remove_question"), "account.app_remove",
    () => change("totp/delete", {}, word("account.app_removed"), "totp-begin")],
  "sign-out-everywhere": [() => "account.sessions_end_all_question", "account.sessions_end_all",
    () => leave("sign-out-everywhere", {})],
};
for (const [id, [question, label, action]] of Object.entries(QUESTIONS)) {
  at(id).addEventListener("click", () => ask(word(question()), word(label), action, id));
}
at("recovery-create").addEventListener("click", () => {
  const [question, yes] = [word("account.codes_create_question"), word("account.codes_create_yes")];
  if (account.recovery_codes) ask(question, yes, createCodes, "recovery-create");
  else run(createCodes, "recovery-create");
});
const SUBMITS = {
  "name-form": () => change("name", { name: at("full-name").value }, word("account.name_changed"), "profile-title"),
  "contact-form": sendContactCode,
  "contact-proof": confirmContact,
  "password-form": setPassword,
  "totp-setup": confirmTotp,
};
// the button that begins again if the proofs are no longer fresh
const BEGINS = { "password-form": () => "password-begin", "totp-setup": () => "totp-begin",
  "contact-form": () => newContact.begin, "contact-proof": () => newContact.begin };
for (const [id, action] of Object.entries(SUBMITS)) {
  at(id).addEventListener("submit", (event) => {
    event.preventDefault();
    run(action, BEGINS[id]?.());
  });
}
at("show-password").addEventListener("change", ({ target }) => {
  at("new-password").type = target.checked ? "text" : "password";
});
at("delete-account").addEventListener("click", () => {
  const question = word("account.delete_account_question", { name: account.display_name || account.user });
  ask(question, word("account.delete_account_yes"), () => leave("delete", { confirmed: true }), "delete-account");
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
  at(linked === "ok" ? "done" : "message").textContent = linked === "unavailable"
    ? word("account.error_provider_unavailable") : words[`account.link_${linked}`] ?? word("account.link_failed");
  at("links-title").focus();
} else if (account) {
  if (sessionStorage.getItem(NOTE) === JSON.stringify("recovery_code") && account.recovery_codes) {
    at("done").textContent = word("account.code_used", { count: account.recovery_codes.remaining });
  }
  sessionStorage.removeItem(NOTE);
  proceed();
}
