"""A gateway for one-time codes over TLS on the loopback interface, for tests.

It verifies what it gets as a gateway would, with nothing but the standard
library. Each request is a line of output, after the one with the port.
"""
import base64, hashlib, hmac, json

import tls

options = tls.options("secret")


class Gateway(tls.Handler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        signed = b".".join([self.headers["webhook-id"].encode(), self.headers["webhook-timestamp"].encode(), body])
        key = base64.b64decode(options.secret.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        verified = hmac.compare_digest(self.headers["webhook-signature"], expected)
        print(json.dumps({"verified": verified, "body": json.loads(body)}), flush=True)
        self.answer(200 if verified else 401)


tls.serve(options, Gateway)
