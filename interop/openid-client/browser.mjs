// A browser as far as logins need one: it follows redirects and keeps cookies, and a user who knows a password.

import assert from 'node:assert/strict';

const MOST_REDIRECTS = 10;
const BOUND = ['client_id', 'redirect_uri', 'response_type', 'scope', 'code_challenge', 'code_challenge_method'];

export class Browser {
  #cookies = new Map();

  async send(url, { headers = {}, ...more } = {}) {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const all = { accept: 'text/html', ...headers, ...(cookie && { cookie }) };
    const response = await fetch(url, { ...more, headers: all, redirect: 'manual' });
    for (const line of response.headers.getSetCookie()) {
      const [pair, ...attributes] = line.split(';');
      const [name, value] = [pair.slice(0, pair.indexOf('=')).trim(), pair.slice(pair.indexOf('=') + 1)];
      if (attributes.some((attribute) => /^\s*max-age=0$/i.test(attribute)) || value === '') this.#cookies.delete(name);
      else this.#cookies.set(name, value);
    }
    return response;
  }

  // Follows redirects to a page, or to what `ends` says is the end, whose URL nobody serves.
  async follow(url, ends) {
    for (let at = new URL(url), hops = 0; hops < MOST_REDIRECTS; hops += 1) {
      if (ends(at)) return { url: at };
      const response = await this.send(at);
      const location = response.headers.get('location');
      if (!location) return { url: at, response };
      at = new URL(location, at);
    }
    throw new Error(`${url} goes round in circles`);
  }
}

// What somebody does who gets an authorization request, up to the answer for the client at `redirectUri`.
export class User {
  #browser = new Browser();
  #ends;

  constructor(redirectUri) {
    this.#ends = (url) => url.href.startsWith(redirectUri);
  }

  // Without logging in.
  visit = async (url) => {
    const { url: end, response } = await this.#browser.follow(url, this.#ends);
    assert.ok(!response, response && `${end} answers ${response.status}: ${await response.text()}`);
    return end;
  };

  // By password, and where one step is not enough by a one-time code from the outbox of the demo, as the hosted page does.
  login = async (url) => {
    const { url: page, response } = await this.#browser.follow(url, this.#ends);
    assert.equal(response?.status, 200, `${page}`);
    assert.ok(page.pathname.endsWith('/authentication/start'), `${page}`);
    const bound = Object.fromEntries(BOUND.map((name) => [name, page.searchParams.get(name)]));
    const call = (endpoint, more) => this.#call(new URL(endpoint, page), { ...bound, ...more });

    const { session_id, required_steps } = await call('start', { identifier: 'ada@example.com' });
    const step = (endpoint, more) => call(endpoint, { session_id, ...more });
    const [username, password] = ['ada', 'correct horse battery staple'];
    await step('authenticate', { method: 'password', username, password });
    if (required_steps > 1) {
      await step('authenticate', { method: 'email', email: 'ada@example.com' });
      await step('verify-otp', { otp: await this.#code(page) });
    }
    assert.equal((await step('complete')).status, 'completed');
    return this.visit(new URL(`../authorize${page.search}`, page));
  };

  async #call(url, body) {
    const headers = { 'content-type': 'application/json', accept: 'application/json', origin: url.origin };
    const response = await this.#browser.send(url, { method: 'POST', headers, body: JSON.stringify(body) });
    const text = await response.text();
    assert.equal(response.status, 200, `${url}: ${text}`);
    return JSON.parse(text);
  }

  // It is sent by a task of its own.
  async #code(page) {
    for (let tries = 0; tries < 1000; tries += 1) {
      const newest = (await (await fetch(new URL('/demo/outbox', page))).json()).at(-1);
      if (newest) return newest.code;
    }
    throw new Error('no code came');
  }
}
