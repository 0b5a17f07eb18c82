// Trades the code for tokens, shows what they say, and calls with them. They are in the memory of this page alone: a reload
// forgets them, and no other page of this origin finds them in a storage.
"use strict";

// what the login was begun with, and the code that it gave
const login = document.getElementById("login").dataset;
let tokens = {};

function show(place, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  document.getElementById(place).textContent = text;
}

// What a token says. An application shows it; whether it is true, those check who are called with it.
function claims(token) {
  const bytes = atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0))));
}

async function call(path, options) {
  const response = await fetch(path, { ...options, credentials: "omit", cache: "no-store" });
  const text = await response.text();
  return { status: response.status, body: text.startsWith("{") ? JSON.parse(text) : text };
}

function post(path, fields) {
  return call(path, { method: "POST", body: new URLSearchParams({ client_id: login.client, ...fields }) });
}

function withToken(path) {
  return call(path, { headers: { authorization: `Bearer ${tokens.access_token}` } });
}

function take(answer) {
  if (answer.status === 200) {
    // a refresh token is good once: the new one takes its place
    tokens = { ...tokens, ...answer.body };
    show("token", tokens.access_token);
    show("access", claims(tokens.access_token));
    show("identity", claims(tokens.id_token));
    show("refreshes", tokens.refresh_token);
  }
  return answer;
}

// The first tokens must be of the login that this browser began: so says the nonce.
async function exchange() {
  const answer = await post("/token", {
    grant_type: "authorization_code",
    code: login.code,
    redirect_uri: login.redirect,
    code_verifier: login.verifier,
  });
  if (answer.status === 200 && claims(answer.body.id_token).nonce !== login.nonce) {
    return { status: "not shown", body: "the id_token is of another login" };
  }
  return take(answer);
}

const actions = {
  me: () => withToken("/api/me"),
  userinfo: () => withToken("/userinfo"),
  refresh: async () =>
    take(await post("/token", { grant_type: "refresh_token", refresh_token: tokens.refresh_token })),
  revoke: () => post("/revoke", { token: tokens.refresh_token }),
};

async function act(action) {
  const buttons = document.querySelectorAll("button");
  buttons.forEach((button) => (button.disabled = true));
  try {
    const answer = await action();
    show("answer", answer);
    return answer;
  } catch (error) {
    show("answer", `It failed: ${error.message}`);
    return { status: 0 };
  } finally {
    buttons.forEach((button) => (button.disabled = false));
  }
}

for (const [name, action] of Object.entries(actions)) {
  document.getElementById(name).addEventListener("click", () => act(action));
}

// by a form, for the id_token is nothing for logs and histories
document.getElementById("sign-out").addEventListener("submit", (event) => {
  event.target.elements.id_token_hint.value = tokens.id_token ?? "";
});

// the code is spent: it need not stand in the history
history.replaceState(null, "", location.pathname);
act(exchange).then((answer) => answer.status === 200 && act(actions.userinfo));
