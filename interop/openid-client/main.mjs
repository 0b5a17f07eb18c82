// node main.mjs ISSUER: everything, in each way that the bundled server offers.

import { dance } from './dance.mjs';
import { User } from './browser.mjs';

const issuer = process.argv[2];
const web = `${issuer}/demo/callback`;
// the port is whatever the app has
const native = 'http://127.0.0.1:51004/callback';

for (const [name, clientId, redirectUri, more] of [
  ['the plain way', 'demo-web', web, {}],
  ['two steps', 'demo-mfa', web, {}],
  ['a native app', 'demo-native', native, {}],
  ['pushed requests', 'demo-web', web, { par: true }],
  ['proof of possession', 'demo-web', web, { dpop: true }],
  ['both', 'demo-native', native, { par: true, dpop: true }],
]) {
  const { login, visit } = new User(redirectUri);
  await dance({ issuer, clientId, redirectUri, login, visit, api: `${issuer}/api/me`, ...more });
  console.log(`ok: ${name}`);
}
