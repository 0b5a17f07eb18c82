// An identity provider made of oidc-provider, for tests/auth/sso_foreign.rs and tests/sso_connect_page.rs:
// `node main.mjs REDIRECT_URI`.
//
// It signs everybody in as `ada-there` without asking. The first line of its output is its issuer, the second the private
// key of the client `key` as base64. Then it reads commands:
//
//   visit URL    opens an authorization URL like a browser, and prints where it ends: the URL of the callback
//   rotate       replaces all keys by new ones, and prints `rotated`
//   return URI   replaces the redirect URI and all keys, and prints `replaced`
//   wait         lets users click on a link before they are signed in, and prints `waits`
//   claims JSON  replaces the claims about the user, and prints `replaced`
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import Provider from "oidc-provider";

// its notices would mix with the output
console.info = console.warn = () => {};

let [redirectUri] = process.argv.slice(2);
let person = { email: "ada@example.com", email_verified: true, name: "Ada there" };
const client = generateKeyPairSync("ec", { namedCurve: "P-256" });
let turn = 0;
let waits = false;

function keys() {
  turn += 1;
  const made = [
    ["RS256", generateKeyPairSync("rsa", { modulusLength: 2048 })],
    ["PS256", generateKeyPairSync("rsa", { modulusLength: 2048 })],
    ["ES256", generateKeyPairSync("ec", { namedCurve: "P-256" })],
    ["ES384", generateKeyPairSync("ec", { namedCurve: "P-384" })],
    ["EdDSA", generateKeyPairSync("ed25519")],
  ];
  return made.map(([alg, pair]) => ({ ...pair.privateKey.export({ format: "jwk" }), alg, use: "sig", kid: `${alg}-${turn}` }));
}

function provider(issuer) {
  const registered = (client_id, alg, more) => ({
    client_id, redirect_uris: [redirectUri], id_token_signed_response_alg: alg, client_secret: "a secret: of + signs", ...more,
  });
  const made = new Provider(issuer, {
    jwks: { keys: keys() },
    clients: [
      registered("RS256", "RS256", { token_endpoint_auth_method: "client_secret_basic" }),
      registered("PS256", "PS256", { token_endpoint_auth_method: "client_secret_post" }),
      registered("ES256", "ES256", { token_endpoint_auth_method: "none", client_secret: undefined }),
      registered("ES384", "ES384", { token_endpoint_auth_method: "client_secret_basic" }),
      registered("EdDSA", "EdDSA", {
        token_endpoint_auth_method: "private_key_jwt", client_secret: undefined,
        jwks: { keys: [{ ...client.publicKey.export({ format: "jwk" }), kid: "ours", use: "sig" }] },
      }),
    ],
    enabledJWA: {
      idTokenSigningAlgValues: ["RS256", "PS256", "ES256", "ES384", "EdDSA"],
      clientAuthSigningAlgValues: ["ES256"],
    },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
    conformIdTokenClaims: false,
    cookies: { keys: ["not a secret"] },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    findAccount: (_, accountId) => ({
      accountId,
      claims: () => ({ sub: accountId, ...person }),
    }),
    async loadExistingGrant({ oidc }) {
      const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
      grant.addOIDCScope("openid email profile");
      await grant.save();
      return grant;
    },
  });
  const callback = made.callback();
  return async (request, response) => {
    if (!request.url.startsWith("/interaction/")) return callback(request, response);
    if (waits && !request.url.endsWith("?go")) {
      response.setHeader("content-type", "text/html");
      return response.end(`<!doctype html><title>Provider</title><a id="go" href="${request.url}?go">Continue</a>`);
    }
    await made.interactionFinished(request, response, { login: { accountId: "ada-there" } });
  };
}

// Follows redirects on this machine, with cookies.
async function visit(url) {
  const cookies = new Map();
  while (!url.startsWith(redirectUri)) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { redirect: "manual", headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [pair] = line.split(";");
      const at = pair.indexOf("=");
      cookies.set(pair.slice(0, at), pair.slice(at + 1));
    }
    const location = response.headers.get("location");
    if (!location) return `error ${response.status} ${(await response.text()).replaceAll("\n", " ")}`;
    url = new URL(location, url).href;
  }
  return url;
}

let handler;
const server = createServer((request, response) => handler(request, response));
server.listen(0, "127.0.0.1", async () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  handler = provider(issuer);
  console.log(issuer);
  console.log(Buffer.from(client.privateKey.export({ type: "pkcs8", format: "pem" })).toString("base64"));
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...rest] = line.split(" ");
    const argument = rest.join(" ");
    if (command === "visit") console.log(await visit(argument));
    if (command === "rotate") {
      handler = provider(issuer);
      console.log("rotated");
    }
    if (command === "return") {
      redirectUri = argument;
      handler = provider(issuer);
      console.log("replaced");
    }
    if (command === "wait") {
      waits = true;
      console.log("waits");
    }
    if (command === "claims") {
      person = JSON.parse(argument);
      console.log("replaced");
    }
  }
  process.exit();
});
