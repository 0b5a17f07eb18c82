"use strict";
// Shows the stream of events. It is fetched, since an EventSource can't send the header with the key.
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
  const wrong = whatIsWrong(header, key);
  if (wrong) {
    say(wrong);
  } else {
    run(watch.signal, header, key);
  }
});

// Why the browser would not send this. It tells by the same error as for a server that can't be reached.
function whatIsWrong(header, key) {
  const takes = (name, value) => {
    try {
      return new Headers([[name, value]]);
    } catch (error) {
      return null;
    }
  };
  if (!takes(header, "")) return "That is not the name of a header.";
  const headers = takes(header, key);
  if (!headers) return "A header can't carry that key: it has characters that are not Latin-1.";
  if (!new Request("stream", { headers }).headers.has(header)) return "A browser does not let a page send that header.";
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
  // what is there already, then what comes
  let since = "0";
  while (!signal.aborted) {
    try {
      const response = await fetch(`stream?since=${since}`, { headers: { [header]: key }, signal, cache: "no-store" });
      if (response.status !== 200) {
        say(`The server answered ${response.status}.`);
        if (response.status !== 503) return;
      } else {
        say("Watching.");
        since = await read(response.body, since);
        say("The stream has ended; trying again.");
      }
    } catch (error) {
      if (signal.aborted) return;
      say("The server can't be reached; trying again.");
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

// Reads server-sent events to the end; answers with the last id.
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
