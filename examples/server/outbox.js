// Shows new messages as they arrive, and copies codes. The server renders the messages: this page reads itself again.
const EVERY = 1000;
const list = document.getElementById("messages");
const time = new Intl.DateTimeFormat(document.documentElement.lang, { timeStyle: "medium" });

function prepare() {
  document.getElementById("none").hidden = list.children.length > 0;
  for (const each of list.querySelectorAll("time:empty")) {
    each.textContent = `at ${time.format(Number(each.dataset.at))}`;
    each.dateTime = new Date(Number(each.dataset.at)).toISOString();
  }
}

// Adds what is new at the top, and leaves the others alone, so that the focus stays where it is.
async function refresh() {
  const response = await fetch("/demo/outbox", { headers: { accept: "text/html" }, cache: "no-store" });
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const all = [...page.querySelectorAll("#messages > li")];
  list.prepend(...all.filter(({ id }) => !document.getElementById(id)));
  for (const old of [...list.children].slice(all.length)) old.remove();
  prepare();
}

async function copy(button) {
  let says = "Copied";
  try {
    await navigator.clipboard.writeText(button.dataset.code);
  } catch {
    getSelection().selectAllChildren(button.querySelector("b"));
    says = "Selected";
  }
  for (const other of list.querySelectorAll("button span")) other.textContent = "Copy";
  button.querySelector("span").textContent = says;
  document.getElementById("copied").textContent = `${says}: ${button.dataset.code}. Enter it on the page of your login.`;
}

list.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) copy(button);
});
document.getElementById("here").textContent = location.href;
prepare();
setInterval(() => {
  // a server that restarts is asked again
  if (!document.hidden) refresh().catch(() => {});
}, EVERY);
document.addEventListener("visibilitychange", () => document.hidden || refresh().catch(() => {}));
