// Floods the API with the key of one tenant, while another sends a request a second, and draws what happens to both.
const NS = "http://www.w3.org/2000/svg";
const FLOOD = 15000;
const AT_ONCE = 6;
// each bar counts half a second
const STEP = 500;
const BARS = 60;
const SHOWN = ["x-ratelimit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "ratelimit", "ratelimit-policy", "content-type"];

let isScheduled = false;

// Draws in the next frame, once for all answers until then.
function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    tenants.forEach((tenant) => tenant.draw());
  });
}

class Tenant {
  admitted = 0;
  refused = 0;
  failed = 0;
  bars = Array.from({ length: BARS }, () => ({ admitted: 0, refused: 0 }));
  newest = Math.floor(Date.now() / STEP);

  constructor(id) {
    this.section = document.getElementById(id);
    this.find(".one").addEventListener("click", () => this.send());
    const svg = this.find(".bars");
    svg.setAttribute("viewBox", `0 0 ${BARS * 10} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    this.rects = this.bars.map((_, index) =>
      ["refused", "admitted"].map((kind) => {
        const rect = document.createElementNS(NS, "rect");
        rect.setAttribute("class", kind);
        rect.setAttribute("x", index * 10 + 1);
        rect.setAttribute("width", 8);
        svg.append(rect);
        return rect;
      }),
    );
  }

  find(selector) {
    return this.section.querySelector(selector);
  }

  async send() {
    const { header, key } = this.section.dataset;
    try {
      const response = await fetch("/api/hello", { headers: { [header]: key }, cache: "no-store", credentials: "omit" });
      await response.arrayBuffer();
      this.take(response);
    } catch {
      this.failed++;
      this.last = "The server does not answer.";
    }
    schedule();
  }

  take(response) {
    const kind = response.ok ? "admitted" : "refused";
    this[kind]++;
    this.turn();
    this.bars[BARS - 1][kind]++;
    const headers = SHOWN.filter((name) => response.headers.has(name));
    this.last = [`HTTP ${response.status}`, ...headers.map((name) => `${name}: ${response.headers.get(name)}`)].join("\n");
    this.limit = Number(response.headers.get("x-ratelimit")) || this.limit;
    this.left = Number(response.headers.get("x-ratelimit-remaining") ?? this.left);
  }

  // Moves the bars, so that the last one is that of now.
  turn() {
    const now = Math.floor(Date.now() / STEP);
    for (let steps = Math.min(BARS, now - this.newest); steps > 0; steps--) {
      this.bars.shift();
      this.bars.push({ admitted: 0, refused: 0 });
    }
    this.newest = now;
  }

  draw() {
    this.turn();
    this.find(".admitted").textContent = this.admitted;
    this.find(".refused").textContent = this.refused;
    if (this.last) this.find(".headers").textContent = this.last;
    if (this.limit) {
      const used = this.limit - this.left;
      const gauge = this.find(".gauge");
      gauge.setAttribute("aria-valuenow", used);
      gauge.firstElementChild.style.width = `${(100 * used) / this.limit}%`;
      gauge.classList.toggle("full", this.left === 0);
    }
    const most = Math.max(4, ...this.bars.map((bar) => bar.admitted + bar.refused));
    this.bars.forEach(({ admitted, refused }, index) => {
      const [top, bottom] = this.rects[index];
      const heights = [refused, admitted].map((count) => (100 * count) / most);
      bottom.setAttribute("y", 100 - heights[1]);
      bottom.setAttribute("height", heights[1]);
      top.setAttribute("y", 100 - heights[0] - heights[1]);
      top.setAttribute("height", heights[0]);
    });
    this.find(".bars").setAttribute("aria-label", `${this.admitted} admitted, ${this.refused} refused, in half seconds`);
  }
}

const [acme, globex] = ["acme", "globex"].map((id) => new Tenant(id));
const tenants = [acme, globex];
const button = document.getElementById("flood");
const state = document.getElementById("flood-state");
let until = 0;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function flood() {
  const isOn = () => Date.now() < until;
  const asFastAsPossible = async () => {
    while (isOn()) await acme.send();
  };
  const oneASecond = async () => {
    while (isOn()) {
      await globex.send();
      await sleep(1000);
    }
  };
  await Promise.all([oneASecond(), ...Array.from({ length: AT_ONCE }, asFastAsPossible)]);
}

button.addEventListener("click", async () => {
  if (Date.now() < until) {
    until = 0;
    return;
  }
  until = Date.now() + FLOOD;
  button.textContent = "Stop";
  button.setAttribute("aria-pressed", "true");
  state.textContent = "The flood is on.";
  await flood();
  until = 0;
  button.textContent = "Flood acme";
  button.setAttribute("aria-pressed", "false");
  state.textContent = `acme: ${acme.refused} refused. globex: ${globex.refused} refused.`;
});

setInterval(() => {
  if (!document.hidden) schedule();
}, STEP);
