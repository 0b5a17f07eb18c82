"""An issuer of access tokens over TLS on the loopback interface, for tests.

It publishes its metadata and the keys that it is given.
"""
import json

import tls

options = tls.options("keys")


class Issuer(tls.Handler):
    def do_GET(self):
        name = f"https://localhost:{self.server.server_address[1]}"
        body = {
            "/.well-known/openid-configuration": json.dumps({"issuer": name, "jwks_uri": f"{name}/keys"}),
            "/keys": options.keys,
        }.get(self.path)
        self.answer(404 if body is None else 200, (body or "").encode())


tls.serve(options, Issuer)
