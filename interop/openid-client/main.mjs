// node main.mjs ISSUER SHARED: runs everything against both variants of the bundled server. SHARED is the server with the clients of
// `shared.toml`.

import assert from 'node:assert/strict';

import * as client from 'openid-client';

import { User } from './browser.mjs';
import { runWithSecretAndKey } from './confidential.mjs';
import { runFlow, who } from './flow.mjs';

const [issuer, shared] = process.argv.slice(2);
const web = { redirectUri: `${issuer}/demo/callback`, afterLogout: `${issuer}/demo/` };
// the port is chosen by the app
const native = { redirectUri: 'http://127.0.0.1:51004/callback', afterLogout: 'http://127.0.0.1:51004/demo/' };

for (const [name, clientId, uris, more] of [
  ['the plain way', 'demo-web', web, {}],
  ['two steps', 'demo-mfa', web, {}],
  ['a native app', 'demo-native', native, {}],
  ['pushed requests', 'demo-web', web, { par: true }],
  ['proof of possession', 'demo-web', web, { dpop: true }],
  ['both', 'demo-native', native, { par: true, dpop: true }],
]) {
  const user = new User(uris.redirectUri);
  const isSignedIn = () => user.isSignedIn(`${issuer}/account`);
  await runFlow({ issuer, clientId, ...uris, user, isSignedIn, api: `${issuer}/api/me`, ...more });
  console.log(`ok: ${name}`);
}

const site = { redirectUri: 'https://app.example/callback', afterLogout: 'https://app.example/' };
const silently = (clientId, { visit }) =>
  who({ issuer: shared, clientId, redirectUri: site.redirectUri, go: visit, prompt: 'none' });
for (const [name, par] of [['nonces of the server', false], ['and pushed requests', true]]) {
  const user = new User(site.redirectUri);
  const isSignedIn = async () => (await silently('shop', user)) !== null;
  const api = new URL('/api/me', shared);
  await runFlow({ issuer: shared, clientId: 'web', ...site, user, isSignedIn, api, par, dpop: true, nonces: true });
  console.log(`ok: ${name}`);
}

const isKnown = async (user) => (await silently('shop', user)) !== null;
await runWithSecretAndKey({ issuer: shared, ...site, isKnown, api: new URL('/api/me', shared) });

const user = new User(site.redirectUri);
assert.equal(await silently('shop', user), null);
const known = await who({ issuer: shared, clientId: 'web', redirectUri: site.redirectUri, go: user.login });
assert.ok(known.sub && known.auth_time && known.sid);
assert.deepEqual(await silently('shop', user), known);
// not registered for this client
assert.equal(await silently('alone', user), null);
console.log('ok: silent single sign-on');

// the other document has the issuer path at its end (RFC 8414)
const options = { algorithm: 'oauth2', execute: [client.allowInsecureRequests] };
const config = await client.discovery(new URL(shared), 'web', undefined, client.None(), options);
assert.equal(config.serverMetadata().issuer, shared);
console.log('ok: discovery as RFC 8414 has it');
