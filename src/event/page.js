"use strict";
// Shows the event stream. Uses fetch, because an EventSource cannot send the header with the key.
const MOST_ROWS = 500;
const byId = (id) => document.getElementById(id);
const time = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", "");
let watch = null;

byId("form").addEventListener("submit", (submit) => {
  submit.preventDefault();
  if (watch) watch.abort();
  watch = new AbortController();
  byId("rows").replaceChildren();
  const [header, key] = [byId("header").value.trim(), byId("key").value];
  const wrong = problemWith(header, key);
  if (wrong) {
    say(wrong);
  } else {
    run(watch.signal, header, key);
  }
});

// Checks whether the browser would send this header. Its own error would look like an unreachable server.
function problemWith(header, key) {
  const takes = (name, value) => {
    try {
      return new Headers([[name, value]]);
    } catch (error) {
      return null;
    }
  };
  if (!takes(header, "")) return "This is not a valid header name.";
  const headers = takes(header, key);
  if (!headers) return "This key cannot be sent in a header because it has characters outside Latin-1.";
  if (!new Request("stream", { headers }).headers.has(header)) return "Browsers do not allow pages to send this header.";
  return null;
}

function say(text) {
  byId("state").textContent = text;
}

function show(cells, className) {
  const row = document.createElement("tr");
  if (className) row.className = className;
  for (const cell of cells) {
    const td = document.createElement("td");
    td.textContent = cell ?? "";
    row.append(td);
  }
  byId("rows").prepend(row);
  while (byId("rows").rows.length > MOST_ROWS) byId("rows").deleteRow(-1);
}

function showEvent(name, data) {
  const event = JSON.parse(data);
  if (name === "lost") {
    show(["", "", `${event.lost} events were overwritten before they could be shown`], "lost");
    return;
  }
  const reset = event["x-ratelimit-reset"];
  show([event.id, time(event.at), event.kind, event.tenant, event.session, event.policy, event.mode,
    event["x-ratelimit"], event["x-ratelimit-remaining"], reset === undefined ? "" : time(reset * 1000), event.count]);
}

async function run(signal, header, key) {
  // existing events first, then new ones
  let since = "0";
  while (!signal.aborted) {
    try {
      const response = await fetch(`stream?since=${since}`, { headers: { [header]: key }, signal, cache: "no-store" });
      if (response.status !== 200) {
        say(`The server responded with status ${response.status}.`);
        if (response.status !== 503) return;
      } else {
        say("Connected.");
        since = await read(response.body, since);
        say("The stream has ended. Reconnecting.");
      }
    } catch (error) {
      if (signal.aborted) return;
      say("The server is unreachable. Reconnecting.");
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

// Reads server-sent events until the end and returns the last id.
async function read(body, since) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
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
        if (fields.data) showEvent(fields.event, fields.data);
        if (fields.id) since = fields.id;
      }
    }
  } catch (error) {
    return since;
  }
}
