// Exchanges the code for tokens, shows their claims, and calls the API with them. Tokens exist only in the memory of this
// page: a reload drops them, and no other page of this origin can find them in a storage.
"use strict";

// the parameters of the login, and its code
const login = document.getElementById("login").dataset;
let tokens = {};

function show(place, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  document.getElementById(place).textContent = text;
}

// Returns the claims of a token. This page only shows them. The APIs that get the token verify it.
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
    // a refresh token works once, so the new one replaces it
    tokens = { ...tokens, ...answer.body };
    show("access", claims(tokens.access_token));
    show("identity", claims(tokens.id_token));
    const variables = { ACCESS: tokens.access_token, REFRESH: tokens.refresh_token, IDENTITY: tokens.id_token };
    show("shell", Object.entries(variables).map(([name, token]) => `${name}=${token}`).join("\n"));
    show("refreshes", tokens.refresh_token);
  }
  return answer;
}

// The nonce proves that the tokens belong to the login that this browser started.
async function exchange() {
  const answer = await post("/token", {
    grant_type: "authorization_code",
    code: login.code,
    redirect_uri: login.redirect,
    code_verifier: login.verifier,
  });
  if (answer.status === 200 && claims(answer.body.id_token).nonce !== login.nonce) {
    return { status: "not shown", body: "the id_token belongs to another login" };
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

// a form keeps the id_token out of logs and the history
document.getElementById("sign-out").addEventListener("submit", (event) => {
  event.target.elements.id_token_hint.value = tokens.id_token ?? "";
});

// the code has been used, so remove it from the history
history.replaceState(null, "", location.pathname);
act(exchange).then((answer) => answer.status === 200 && act(actions.userinfo));
