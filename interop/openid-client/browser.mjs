// A minimal browser that follows redirects and keeps cookies, and a user who knows a password.

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { text as whole } from 'node:stream/consumers';

const MOST_REDIRECTS = 10;
const BOUND = ['client_id', 'redirect_uri', 'response_type', 'scope', 'code_challenge', 'code_challenge_method'];

export class Browser {
  #cookies = new Map();

  // Doesn't use `fetch`, which sends Sec-Fetch headers of a script.
  async send(url, { method = 'GET', headers = {}, body } = {}) {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const all = { 'sec-fetch-mode': 'navigate', accept: 'text/html', ...headers, ...(cookie && { cookie }) };
    const response = await new Promise((resolve, reject) => {
      request(url, { method, headers: all }, resolve).on('error', reject).end(body);
    });
    for (const line of response.headers['set-cookie'] ?? []) {
      const [pair, ...attributes] = line.split(';');
      const [name, value] = [pair.slice(0, pair.indexOf('=')).trim(), pair.slice(pair.indexOf('=') + 1)];
      if (attributes.some((attribute) => /^\s*max-age=0$/i.test(attribute)) || value === '') this.#cookies.delete(name);
      else this.#cookies.set(name, value);
    }
    return { status: response.statusCode, headers: response.headers, text: await whole(response) };
  }

  // Follows redirects to a page, or to a URL that starts with `end`, without opening it.
  async follow(url, end) {
    for (let at = new URL(url), hops = 0; hops < MOST_REDIRECTS; hops += 1) {
      if (at.href.startsWith(end)) return { url: at };
      const response = await this.send(at);
      const location = response.headers.location;
      if (!location) return { url: at, response };
      at = new URL(location, at);
    }
    throw new Error(`${url} goes round in circles`);
  }
}

// A user who follows an authorization request up to the response for the client at `redirectUri`.
export class User {
  #browser = new Browser();
  #redirectUri;
  // A different channel each time, because codes are limited to one per half minute and channel.
  #seconds = [
    { method: 'email', email: 'ada@example.com' },
    { method: 'sms', phone_number: '+15555550100' },
    { method: 'whatsapp', phone_number: '+15555550100' },
  ];

  constructor(redirectUri) {
    this.#redirectUri = redirectUri;
  }

  // Without signing in.
  visit = async (url, end = this.#redirectUri) => {
    const { url: last, response } = await this.#browser.follow(url, end);
    assert.ok(!response, response && `${last} answers ${response.status}: ${response.text}`);
    return last;
  };

  isSignedIn = async (account) => (await this.#browser.send(account)).status === 200;

  // Signs in by password and, if there is a second step, by a one-time code from the demo outbox, like the login page.
  login = async (url) => {
    const { url: page, response } = await this.#browser.follow(url, this.#redirectUri);
    // with single sign-on, some clients get their response immediately
    if (!response) return page;
    assert.equal(response.status, 200, `${page} ${response.text}`);
    assert.ok(page.pathname.endsWith('/authentication/start'), `${page}`);
    // pushed parameters are not in the URL
    const told = await this.#browser.send(page, { headers: { accept: 'application/json', 'sec-fetch-mode': 'cors' } });
    const asked = JSON.parse(told.text).parameters ?? Object.fromEntries(page.searchParams);
    const bound = Object.fromEntries(BOUND.map((name) => [name, asked[name]]));
    const call = (endpoint, more) => this.#call(new URL(endpoint, page), { ...bound, ...more });

    // with single sign-on, the first step may already be done
    const { session_id, required_steps, next_step } = await call('start', { identifier: 'ada@example.com' });
    const step = (endpoint, more) => call(endpoint, { session_id, ...more });
    const [username, password] = ['ada', 'correct horse battery staple'];
    if (next_step === 1) await step('authenticate', { method: 'password', username, password });
    if (next_step !== null && required_steps > 1) {
      const second = this.#seconds.shift();
      await step('authenticate', second);
      await step('verify-otp', { otp: await this.#code(page, second.method) });
    }
    assert.equal((await step('complete')).status, 'completed');
    return this.visit(new URL(`../authorize${page.search}`, page));
  };

  async #call(url, body) {
    const headers = { 'content-type': 'application/json', accept: 'application/json', 'sec-fetch-mode': 'cors' };
    const response = await this.#browser.send(url, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.equal(response.status, 200, `${url}: ${response.text}`);
    return JSON.parse(response.text);
  }

  // A background task sends the code.
  async #code(page, channel) {
    for (let tries = 0; tries < 1000; tries += 1) {
      const sent = await (await fetch(new URL('/demo/outbox', page))).json();
      const newest = sent.findLast((message) => message.channel === channel);
      if (newest) return newest.code;
    }
    throw new Error('no code came');
  }
}
