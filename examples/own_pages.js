// The script of the login page in own_pages.rs. Its input is its own URL and the answers of the JSON endpoints.
const query = new URLSearchParams(location.search);
// every call repeats these parameters of the URL
const names = ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"];
const bound = Object.fromEntries(names.map((name) => [name, query.get(name)]));
const find = (id) => document.getElementById(id);

async function call(path, own) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...bound, ...own }),
  });
  const answer = await response.json();
  if (!response.ok) throw answer;
  return answer;
}

// only the start takes these: without them, a request for a fresh sign-in or for another step is never met
const parameters = ["return_to", "max_age", "steps", "prompt", "acr_values", "claims"];
const passed = Object.fromEntries(parameters.filter((name) => query.has(name)).map((name) => [name, query.get(name)]));
let session_id;
let proveCode; // sends the typed code

// Goes on with the next step, if one remains: this page knows codes of authenticator apps and by e-mail. A user who has set up an
// app needs it, even if `start` required one step.
async function next({ remaining_steps: remaining }) {
  if (remaining === 0) return finish();
  const response = await fetch(`choices?session_id=${session_id}`);
  const { methods = [], contacts = [] } = await response.json();
  const contact = contacts.find(({ method }) => method === "email");
  if (methods.includes("totp")) {
    find("from").textContent = "The code that your authenticator app shows";
    proveCode = (code) => call("authenticate", { session_id, method: "totp", code });
  } else if (contact) {
    await call("authenticate", { session_id, method: "email", contact_id: contact.contact_id });
    find("from").textContent = `The code that we have sent to ${contact.masked}`;
    proveCode = (otp) => call("verify-otp", { session_id, otp });
  } else {
    throw { error: "no_method" };
  }
  find("form").hidden = true;
  find("code-form").hidden = false;
  find("code").focus();
}

async function finish() {
  await call("complete", { session_id });
  // the same URL as JSON describes the request, and says where to go on
  const described = await fetch(location.href, { headers: { accept: "application/json" } });
  const { continue_to } = await described.json();
  location.replace(continue_to ?? `../authorize${location.search}`);
}

const words = {
  invalid_credentials: "Wrong name or password.",
  invalid_otp: "Wrong code.",
  session_expired: "That took too long. Please sign in again.",
  session_failed: "Too many attempts. Please sign in again.",
  invalid_session: "Please sign in again.",
  no_method: "You need another way to sign in, which this page does not offer.",
};

function onSubmit(id, action) {
  find(id).addEventListener("submit", async (event) => {
    event.preventDefault();
    find("message").textContent = "";
    try {
      await action();
    } catch ({ error, retry_after }) {
      const wait = retry_after ? ` Wait ${retry_after} seconds.` : "";
      if (["session_expired", "session_failed", "invalid_session"].includes(error)) {
        find("code-form").hidden = true;
        find("form").hidden = false;
      }
      find("message").textContent = (words[error] ?? "Please try again.") + wait;
    }
  });
}

onSubmit("form", async () => {
  const [username, password] = [find("name").value, find("password").value];
  ({ session_id } = await call("start", { identifier: username, continue_session: false, ...passed }));
  await next(await call("authenticate", { session_id, method: "password", username, password }));
});
onSubmit("code-form", async () => next(await proveCode(find("code").value.trim())));
