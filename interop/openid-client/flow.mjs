// Everything a client does with a login, using openid-client in strict mode: no clock tolerance, and all signatures
// are verified even though the tokens come directly from the server.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';

import * as client from 'openid-client';

const HASHES = { RS256: 'sha256', ES256: 'sha256', EdDSA: 'sha512', Ed25519: 'sha512' };
const SCOPE = 'openid profile email';
const MAX_AGE = 600;

// Reads the metadata of the server. `auth` is how the client authenticates.
export async function discover(issuer, clientId, auth = client.None()) {
  const options = { execute: [client.enableNonRepudiationChecks] };
  // the bundled server has no TLS
  if (issuer.startsWith('http:')) options.execute.push(client.allowInsecureRequests);
  const metadata = { [client.clockTolerance]: 0 };
  const config = await client.discovery(new URL(issuer), clientId, metadata, auth, options);

  const server = config.serverMetadata();
  assert.equal(server.issuer, issuer);
  assert.deepEqual(server.code_challenge_methods_supported, ['S256']);
  assert.equal(server.authorization_response_iss_parameter_supported, true);
  assert.ok(server.response_types_supported.includes('code'));

  const { keys } = await (await fetch(server.jwks_uri)).json();
  assert.ok(keys.length > 0);
  for (const key of keys) {
    assert.ok(key.kid && key.alg && key.use === 'sig', JSON.stringify(key));
    for (const secret of ['d', 'p', 'q', 'dp', 'dq', 'qi', 'k']) assert.ok(!(secret in key), `${secret} is published`);
  }
  return config;
}

// From the first visit to the logout. `login` follows the URL of an authorization request to the URL of its
// response, like a browser with its user. `visit` does so without a login. `api` is a resource that accepts our access tokens.
export async function runFlow(settings) {
  const { issuer, clientId, auth, redirectUri, afterLogout, user, isSignedIn, api, par, dpop, nonces } = settings;
  const config = await discover(issuer, clientId, auth);
  const { login, visit } = user;
  // the library retries with the nonce on its own
  let demanded = false;
  config[client.customFetch] = async (...request) => {
    const response = await fetch(...request);
    const challenge = response.headers.get('www-authenticate') ?? '';
    const told = challenge + (response.status === 400 ? await response.clone().text() : '');
    demanded ||= told.includes('use_dpop_nonce') && response.headers.has('dpop-nonce');
    return response;
  };
  const options = dpop ? { DPoP: client.getDPoPHandle(config, await client.randomDPoPKeyPair('ES256')) } : {};
  const tokenType = dpop ? 'dpop' : 'bearer';

  const ask = async (more = {}) => {
    const { parameters, checks } = await request(redirectUri, more);
    const url = par
      ? await client.buildAuthorizationUrlWithPAR(config, parameters, options)
      : client.buildAuthorizationUrl(config, parameters);
    assert.equal(url.searchParams.has('request_uri'), Boolean(par));
    return { url, checks };
  };
  const exchange = (back, checks) => client.authorizationCodeGrant(config, back, checks, undefined, options);

  // ---- the login, and its code for tokens
  const first = await ask({ max_age: String(MAX_AGE) });
  const back = await login(first.url);
  const checks = { ...first.checks, maxAge: MAX_AGE, idTokenExpected: true };
  // foreign responses are rejected before anything is sent
  await assert.rejects(exchange(back, { ...checks, expectedState: 'another' }));
  const tokens = await exchange(back, checks);

  assert.equal(tokens.token_type.toLowerCase(), tokenType);
  assert.ok(tokens.expires_in > 0 && tokens.expires_in <= 600);
  assert.ok(tokens.refresh_token);
  const claims = tokens.claims();
  assert.equal(claims.at_hash, atHash(tokens));
  assert.ok(claims.auth_time <= claims.iat && claims.sub.length > 0);

  // ---- use the tokens
  const info = await client.fetchUserInfo(config, tokens.access_token, claims.sub, options);
  assert.equal(info.sub, claims.sub);
  const call = (token) => client.fetchProtectedResource(config, token, new URL(api), 'GET', null, undefined, options);
  if (api) assert.equal((await call(tokens.access_token)).status, 200);
  if (dpop) {
    // rejected without the key
    const stolen = client.fetchUserInfo(config, tokens.access_token, claims.sub);
    await assert.rejects(stolen, challenge('invalid_token', 'invalid_request', 'invalid_dpop_proof'));
  }
  // a client that does not authenticate may not introspect (RFC 7662, section 2.1), and another learns about its own tokens
  if (auth) {
    const known = await client.tokenIntrospection(config, tokens.access_token);
    assert.deepEqual([known.active, known.client_id, known.sub], [true, clientId, claims.sub]);
  } else if (config.serverMetadata().introspection_endpoint) {
    await assert.rejects(client.tokenIntrospection(config, tokens.access_token), (error) => error.status === 401);
  }

  // ---- refresh them
  const refresh = (token) => client.refreshTokenGrant(config, token, undefined, options);
  const newer = await refresh(tokens.refresh_token);
  assert.notEqual(newer.refresh_token, tokens.refresh_token);
  assert.notEqual(newer.access_token, tokens.access_token);
  assert.equal((await client.fetchUserInfo(config, newer.access_token, claims.sub, options)).sub, claims.sub);
  const again = newer.claims();
  if (again) {
    assert.deepEqual([again.sub, again.auth_time, again.sid], [claims.sub, claims.auth_time, claims.sid]);
    assert.equal(again.at_hash ?? atHash(newer), atHash(newer));
  }
  const narrower = await client.refreshTokenGrant(config, newer.refresh_token, { scope: 'openid' }, options);
  if (narrower.scope) assert.equal(narrower.scope, 'openid');

  // ---- revoke them
  await client.tokenRevocation(config, narrower.refresh_token);
  await client.tokenRevocation(config, 'never issued');
  await assert.rejects(refresh(narrower.refresh_token), refused('invalid_grant'));
  await assert.rejects(
    client.fetchUserInfo(config, narrower.access_token, claims.sub, options),
    challenge('invalid_token'),
  );

  // ---- a code can be redeemed once, with its verifier
  const second = await ask();
  const guessed = { ...second.checks, pkceCodeVerifier: client.randomPKCECodeVerifier() };
  await assert.rejects(exchange(await login(second.url), guessed), refused('invalid_grant'));
  const third = await ask({ max_age: String(MAX_AGE) });
  const other = await login(third.url);
  const last = await exchange(other, { ...third.checks, maxAge: MAX_AGE, idTokenExpected: true });
  assert.equal(last.claims().sub, claims.sub);
  assert.ok(last.claims().auth_time >= claims.auth_time);
  await assert.rejects(exchange(other, third.checks), refused('invalid_grant'));
  await assert.rejects(refresh('never issued'), refused('invalid_grant'));

  // ---- log out and return to the client; this also revokes the tokens
  assert.equal(await isSignedIn(), true);
  const state = client.randomState();
  const out = client.buildEndSessionUrl(config, {
    post_logout_redirect_uri: afterLogout,
    id_token_hint: last.id_token,
    state,
  });
  const gone = await visit(out, afterLogout);
  assert.equal(gone.searchParams.get('state'), state);
  assert.equal(await isSignedIn(), false);
  await assert.rejects(refresh(last.refresh_token), refused('invalid_grant'));
  assert.equal(demanded, Boolean(nonces));
  const silent = await ask({ prompt: 'none' });
  await assert.rejects(exchange(await visit(silent.url), silent.checks), refused('login_required'));
}

// Returns the user as this client sees it, without interaction if `prompt` is `none`. Returns `null` if that is not possible.
export async function who({ issuer, clientId, redirectUri, go, prompt }) {
  const config = await discover(issuer, clientId);
  const { parameters, checks } = await request(redirectUri, prompt && { prompt });
  const back = await go(client.buildAuthorizationUrl(config, parameters));
  try {
    const { sub, aud, auth_time, sid } = (await client.authorizationCodeGrant(config, back, checks)).claims();
    assert.equal(aud, clientId);
    return { sub, auth_time, sid };
  } catch (thrown) {
    refused('login_required')(thrown);
    return null;
  }
}

// The parameters for /authorize, and the values that the response must match.
async function request(redirectUri, more) {
  const pkceCodeVerifier = client.randomPKCECodeVerifier();
  const checks = { pkceCodeVerifier, expectedState: client.randomState(), expectedNonce: client.randomNonce() };
  const parameters = {
    redirect_uri: redirectUri,
    scope: SCOPE,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
    state: checks.expectedState,
    nonce: checks.expectedNonce,
    ...more,
  };
  return { parameters, checks };
}

// OpenID Connect Core, 3.1.3.6, which the library does not check.
function atHash({ id_token, access_token }) {
  const { alg } = JSON.parse(Buffer.from(id_token.split('.')[0], 'base64url'));
  const hash = createHash(HASHES[alg]).update(access_token).digest();
  return hash.subarray(0, hash.length / 2).toString('base64url');
}

const refused = (error) => (thrown) => {
  assert.equal(thrown.error, error, thrown);
  return true;
};

const challenge = (...errors) => (thrown) => {
  // each scheme has a challenge, and the one that was tried contains the error
  const named = thrown.cause?.map(({ parameters }) => parameters.error).find(Boolean);
  assert.ok(thrown.status === 401 || thrown.status === 400, thrown);
  assert.ok(errors.includes(named), `${named}: ${thrown}`);
  return true;
};
