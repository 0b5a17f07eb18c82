// Reads the log and the budgets. Uses fetch, because an EventSource cannot send the header with the key.
const RETRY = 2000;
const POLL = 1000;

// Checks whether the browser would send this header. Its own error would look like an unreachable server.
export function problemWith(header, key) {
  const takes = (name, value) => {
    try {
      return new Headers([[name, value]]);
    } catch {
      return null;
    }
  };
  if (!takes(header, "")) return "This is not a valid header name.";
  const headers = takes(header, key);
  if (!headers) return "This key cannot be sent in a header because it has characters outside Latin-1.";
  if (!new Request("stream", { headers }).headers.has(header)) return "Browsers do not allow pages to send this header.";
  return null;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Passes each event to `take`, first those that exist, and reconnects until the signal ends it.
export async function watchEvents(headers, signal, say, take) {
  let since = "0";
  while (!signal.aborted) {
    try {
      const response = await fetch(`stream?since=${since}`, { headers, signal, cache: "no-store" });
      if (response.status !== 200) {
        say(`The server responded with status ${response.status}.`, "wrong");
        if (response.status !== 503) return;
      } else {
        say("Connected.", "live");
        since = await readStream(response.body, since, take);
        if (!signal.aborted) say("The stream has ended. Reconnecting.", "wrong");
      }
    } catch {
      if (signal.aborted) return;
      say("The server is unreachable. Reconnecting.", "wrong");
    }
    await sleep(RETRY);
  }
}

// Reads server-sent events until the end and returns the last id.
async function readStream(body, since, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let began = performance.now();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return since;
      text += value;
      const messages = text.split("\n\n");
      text = messages.pop();
      for (const message of messages) {
        const fields = {};
        for (const line of message.split("\n")) {
          const colon = line.indexOf(": ");
          if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
        }
        if (fields.data) take(fields.event, JSON.parse(fields.data));
        if (fields.id) since = fields.id;
      }
      // lets the browser draw and answer clicks during a flood
      if (!document.hidden && performance.now() - began > 12) {
        await sleep(0);
        began = performance.now();
      }
    }
  } catch {
    return since;
  }
}

// Passes the budgets to `take` each second, with those of the tenants that `names` returns. Passes `null` if the server
// shows none.
export async function watchBudgets(headers, signal, names, take) {
  while (!signal.aborted) {
    try {
      const query = names().map((name) => `tenant=${encodeURIComponent(name)}`).join("&");
      const response = await fetch(`usage?${query}`, { headers, signal, cache: "no-store" });
      if (response.status === 200) take(await response.json());
      else if (response.status < 500) return;
    } catch {
      // the stream reports it
    }
    await sleep(POLL);
  }
}
