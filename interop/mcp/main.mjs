// node main.mjs SERVER: connects to examples/mcp_server.rs as a program with the TypeScript SDK of MCP does. It prints the URLs
// on which a user has to sign in, as `open: URL`.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';

import { auth, UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const origin = process.argv[2];
const serverUrl = new URL(`${origin}/mcp`);

// where the browser comes back
const listener = createServer().listen(0, '127.0.0.1');
await once(listener, 'listening');
const redirectUrl = `http://127.0.0.1:${listener.address().port}/callback`;

// Remembers everything, as the file of a real program would.
class Provider {
  redirectUrl = redirectUrl;
  clientMetadata = { client_name: 'a test', redirect_uris: [redirectUrl], token_endpoint_auth_method: 'none' };
  #client = { client_id: 'notes-acme' };
  #state = 0;

  state = () => `state-${(this.#state += 1)}`;
  clientInformation = () => this.#client;
  saveClientInformation = (client) => (this.#client = client);
  tokens = () => this.saved;
  saveTokens = (tokens) => (this.saved = tokens);
  saveCodeVerifier = (verifier) => (this.verifier = verifier);
  codeVerifier = () => this.verifier;
  redirectToAuthorization = (url) => (this.authorization = url);

  // Lets the user sign in, and returns the code.
  async code() {
    console.log(`open: ${this.authorization}`);
    const [request, response] = await once(listener, 'request');
    response.end('you can close this page');
    const { searchParams } = new URL(request.url, redirectUrl);
    assert.equal(searchParams.get('iss'), origin);
    assert.equal(searchParams.get('state'), `state-${this.#state}`);
    return searchParams.get('code') ?? assert.fail(request.url);
  }

  claims = () => JSON.parse(Buffer.from(this.saved.access_token.split('.')[1], 'base64url').toString());
}

const provider = new Provider();

async function connect() {
  const client = new Client({ name: 'a test', version: '1' });
  const transport = new StreamableHTTPClientTransport(serverUrl, { authProvider: provider });
  return { client, transport, done: client.connect(transport) };
}

const call = async (client, name, args) => {
  const { content } = await client.callTool({ name, arguments: args });
  return content[0].text;
};

const first = await connect();
await assert.rejects(first.done, UnauthorizedError);
assert.equal(provider.authorization.searchParams.get('resource'), serverUrl.href);
assert.equal(provider.authorization.searchParams.get('scope'), 'notes:read');
console.log('ok: the 401 leads to the metadata of the server and of its issuer');

await first.transport.finishAuth(await provider.code());
let { client, done } = await connect();
await done;
assert.deepEqual((await client.listTools()).tools.map(({ name }) => name).sort(), ['add_note', 'list_notes']);
assert.equal(await call(client, 'list_notes', {}), '');
const { aud, scope, tenant, sub } = provider.claims();
assert.deepEqual({ aud, scope, tenant, sub }, { aud: serverUrl.href, scope: 'notes:read', tenant: 'acme', sub: 'u-ada' });
console.log('ok: a token for this server, and a tool call');

await assert.rejects(call(client, 'add_note', { text: 'milk' }), /lacks the scope notes:write/);
console.log('ok: a tool needs another scope');

const old = provider.saved;
assert.equal(await auth(provider, { serverUrl }), 'AUTHORIZED');
assert.notEqual(provider.saved.access_token, old.access_token);
assert.equal(provider.claims().aud, serverUrl.href);
console.log('ok: a refreshed token is for the same server');

provider.saved = undefined;
assert.equal(await auth(provider, { serverUrl, scope: 'notes:read notes:write' }), 'REDIRECT');
await auth(provider, { serverUrl, authorizationCode: await provider.code() });
({ client, done } = await connect());
await done;
assert.equal(await call(client, 'add_note', { text: 'milk' }), 'added');
assert.equal(await call(client, 'list_notes', {}), 'milk\n');
console.log('ok: a sign-in for more scopes');

// no parameter `resource`, so the token is for the issuer
provider.saved = undefined;
provider.validateResourceURL = () => undefined;
assert.equal(await auth(provider, { serverUrl, scope: 'notes:read' }), 'REDIRECT');
assert.equal(provider.authorization.searchParams.get('resource'), null);
await auth(provider, { serverUrl, authorizationCode: await provider.code() });
assert.equal(provider.claims().aud, origin);
const headers = { authorization: `Bearer ${provider.saved.access_token}`, 'content-type': 'application/json' };
const refused = await fetch(serverUrl, { method: 'POST', headers, body: '{}' });
assert.equal(refused.status, 401);
assert.match(refused.headers.get('www-authenticate'), /error="invalid_token".*resource_metadata="/);
console.log('ok: a token for another resource is refused');

listener.close();
listener.closeAllConnections();
