// The page on which signed-in users manage their account. All its data comes from `/account/credentials`.
const here = new URL(".", import.meta.url);
const at = (id) => document.getElementById(id);

async function call(path, body) {
  const headers = { accept: "application/json" };
  if (body) headers["content-type"] = "application/json";
  const response = await fetch(new URL(path, here), {
    method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body),
    redirect: "error", cache: "no-store", signal: AbortSignal.timeout(30_000),
  });
  const answer = response.status === 204 ? {} : await response.json();
  if (response.ok) return answer;
  if (answer.error === "login_required") location.reload();
  // changes of sign-in methods need a fresh login
  if (answer.login_url) location.assign(answer.login_url);
  throw answer;
}

const time = (seconds) => new Date(seconds * 1000).toLocaleString();

async function show() {
  const { display_name: name, sessions } = await call("credentials");
  at("user").textContent = `Signed in as ${name}`;
  at("sessions").replaceChildren(...sessions.map(({ sid, current, device, last_used_at: used }) => {
    const row = document.createElement("li");
    row.textContent = `${device ?? "Unknown device"}, last used ${time(used)}${current ? " (this device)" : ""}`;
    if (current) return row;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "link";
    button.textContent = "End";
    button.addEventListener("click", () => run(() => call("sessions/end", { sid })));
    row.append(" ", button);
    return row;
  }));
}

async function run(action) {
  at("message").textContent = "";
  try {
    await action();
    await show();
  } catch {
    at("message").textContent = "Something went wrong. Please reload this page.";
  }
}

at("others").addEventListener("click", () => run(() => call("sessions/end-others", {})));
at("everywhere").addEventListener("click", () => run(() => call("sign-out-everywhere", {})));
run(async () => {});
