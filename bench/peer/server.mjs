// oidc-provider with the same setup as our own server: a public client with PKCE, ES256, rotating refresh tokens, all
// in memory.
//
//     node server.mjs jwt|opaque
//
// The argument is the format of its access tokens. It prints its address, and ends with its parent.

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';

import Provider from 'oidc-provider';

const API = 'https://api.example';
const SCOPE = 'openid profile email';
const HOUR = 3600;

// The bundled store keeps a thousand rows, and searches all tokens of a grant when one is added. This one keeps everything
// and searches nothing.
const rows = new Map();
const grants = new Map();

class Rows {
  constructor(model) {
    this.model = model;
  }

  key(id) {
    return `${this.model}:${id}`;
  }

  async upsert(id, payload) {
    rows.set(this.key(id), payload);
    if (payload.uid) rows.set(`uid:${payload.uid}`, id);
    if (payload.grantId) {
      const members = grants.get(payload.grantId);
      if (members) members.push(this.key(id));
      else grants.set(payload.grantId, [this.key(id)]);
    }
  }

  async find(id) {
    return rows.get(this.key(id));
  }

  async findByUid(uid) {
    return this.find(rows.get(`uid:${uid}`));
  }

  async consume(id) {
    rows.get(this.key(id)).consumed = Math.floor(Date.now() / 1000);
  }

  async destroy(id) {
    rows.delete(this.key(id));
  }

  async revokeByGrantId(grantId) {
    for (const key of grants.get(grantId) ?? []) rows.delete(key);
    grants.delete(grantId);
  }
}

const api = { scope: SCOPE, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } };
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const jwk = { ...privateKey.export({ format: 'jwk' }), kid: 'one', alg: 'ES256', use: 'sig' };

const provider = new Provider('http://auth.example', {
  adapter: Rows,
  jwks: { keys: [jwk] },
  clients: [
    {
      client_id: 'web',
      redirect_uris: ['https://app.example/callback'],
      response_types: ['code'],
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'none',
      id_token_signed_response_alg: 'ES256',
    },
  ],
  scopes: SCOPE.split(' '),
  pkce: { required: () => true },
  issueRefreshToken: async () => true,
  rotateRefreshToken: true,
  features: {
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: process.argv[2] === 'jwt',
      defaultResource: () => API,
      getResourceServerInfo: () => api,
      useGrantedResource: () => true,
    },
  },
  findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  // every user consents. Each session has one grant, because another one would end the first and its codes
  async loadExistingGrant({ oidc }) {
    const known = oidc.session.grantIdFor(oidc.client.clientId);
    if (known) return provider.Grant.find(known);
    const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
    grant.addOIDCScope(SCOPE);
    grant.addResourceScope(API, SCOPE);
    await grant.save();
    return grant;
  },
  interactions: { url: (_, { uid }) => `/login/${uid}` },
  // long enough for all codes of a round
  ttl: { AccessToken: 600, AuthorizationCode: HOUR, Grant: HOUR, IdToken: HOUR, Interaction: HOUR, RefreshToken: HOUR, Session: HOUR },
});
provider.on('server_error', (_, error) => console.error(error));

// Every user is let in under the name that they give.
const answer = provider.callback();
const server = createServer(async (request, response) => {
  if (!request.url.startsWith('/login/')) return answer(request, response);
  const { params } = await provider.interactionDetails(request, response);
  await provider.interactionFinished(request, response, { login: { accountId: params.login_hint } });
});
server.keepAliveTimeout = HOUR * 1000;
server.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));

process.stdin.on('end', () => process.exit()).resume();
