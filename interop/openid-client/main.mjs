// node main.mjs ISSUER: everything, in each way that the bundled server offers.

import { dance } from './dance.mjs';
import { User } from './browser.mjs';

const issuer = process.argv[2];
const web = { redirectUri: `${issuer}/demo/callback`, afterLogout: `${issuer}/demo/` };
// the port is whatever the app has
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
  const { login, visit } = user;
  await dance({ issuer, clientId, ...uris, login, visit, isSignedIn, api: `${issuer}/api/me`, ...more });
  console.log(`ok: ${name}`);
}
