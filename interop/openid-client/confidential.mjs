// Confidential clients with each method of authentication: with openid-client, and with oauth4webapi alone.

import assert from 'node:assert/strict';

import * as oauth from 'oauth4webapi';
import * as client from 'openid-client';

import { User } from './browser.mjs';
import { discover, runFlow } from './flow.mjs';

// The clients of `shared.toml`. This secret and this key are for tests only.
const BOOKS = 'https://books.example:8443';
const SECRET = '9AsjTzMOhIEEStf4D4ys1qT8_yoIVwrQ1JfkAFyt-Q8';
const KEY = {
  kty: 'EC',
  crv: 'P-256',
  x: 'HXEG3k1lMLtFdh9xksnlRrNnazp9kQZGgLPPzN2USys',
  y: 'vvB81odBwbfcT43CRO_w6jQGojbbZiYYv5lTteEI9dw',
  d: 'vklZQZHAuo_0iv3WGuRPqLlBoRy0d6QGPSdQuQKok8c',
};
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' };
const SCOPE = 'openid email';

const options = { [oauth.allowInsecureRequests]: true };

export async function runWithSecretAndKey({ isKnown, ...settings }) {
  const key = await crypto.subtle.importKey('jwk', KEY, ALGORITHM, false, ['sign']);
  for (const [name, clientId, how] of [
    ['client_secret_basic', BOOKS, (library) => library.ClientSecretBasic(SECRET)],
    ['client_secret_post', BOOKS, (library) => library.ClientSecretPost(SECRET)],
    ['private_key_jwt', 'signer', (library) => library.PrivateKeyJwt(key)],
  ]) {
    const own = await discover(settings.issuer, clientId, how(client));
    assert.ok(own.serverMetadata().token_endpoint_auth_methods_supported.includes(name));
    for (const [kind, more] of [['', {}], [', pushed and with proofs', { par: true, dpop: true, nonces: true }]]) {
      const user = new User(settings.redirectUri);
      const isSignedIn = () => isKnown(user);
      await runFlow({ ...settings, clientId, auth: how(client), user, isSignedIn, ...more });
      console.log(`ok: ${name}${kind}`);
    }
    await runAlone({ ...settings, clientId, auth: how(oauth) });
    console.log(`ok: ${name} with oauth4webapi`);
  }
}

// Runs the flow with oauth4webapi, from a pushed request to the revocation.
async function runAlone({ issuer, redirectUri, clientId, auth }) {
  const at = new URL(issuer);
  const as = await oauth.processDiscoveryResponse(at, await oauth.discoveryRequest(at, options));
  const self = { client_id: clientId };
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  const parameters = {
    client_id: clientId,
    redirect_uri: redirectUri,
    response_type: 'code',
    scope: SCOPE,
    state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
  };
  const pushing = await oauth.pushedAuthorizationRequest(as, self, auth, parameters, options);
  const { request_uri } = await oauth.processPushedAuthorizationResponse(as, self, pushing);
  const url = new URL(as.authorization_endpoint);
  url.search = new URLSearchParams({ client_id: clientId, request_uri });
  const back = oauth.validateAuthResponse(as, self, await new User(redirectUri).login(url), state);

  // without its credentials, the client gets nothing, and the code stays good
  const bare = await oauth.authorizationCodeGrantRequest(as, self, oauth.None(), back, redirectUri, verifier, options);
  await assert.rejects(oauth.processAuthorizationCodeResponse(as, self, bare), (thrown) => thrown.status === 401);
  const answer = await oauth.authorizationCodeGrantRequest(as, self, auth, back, redirectUri, verifier, options);
  const tokens = await oauth.processAuthorizationCodeResponse(as, self, answer, { requireIdToken: true });
  const refreshing = await oauth.refreshTokenGrantRequest(as, self, auth, tokens.refresh_token, options);
  const newer = await oauth.processRefreshTokenResponse(as, self, refreshing);
  const introspect = async () => {
    const response = await oauth.introspectionRequest(as, self, auth, newer.access_token, options);
    return (await oauth.processIntrospectionResponse(as, self, response)).active;
  };
  assert.equal(await introspect(), true);
  await oauth.processRevocationResponse(await oauth.revocationRequest(as, self, auth, newer.refresh_token, options));
  assert.equal(await introspect(), false);
}
