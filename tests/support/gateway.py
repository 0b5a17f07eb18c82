"""A gateway for one-time codes over TLS on the loopback interface, for tests.

It verifies what it gets as a gateway would, with nothing but the standard
library. Its first line of output is {"port": …}; each request is a line more.
"""
import argparse, base64, hashlib, hmac, http.server, json, ssl

parser = argparse.ArgumentParser()
parser.add_argument("--chain", required=True)
parser.add_argument("--key", required=True)
parser.add_argument("--secret", required=True)
options = parser.parse_args()


class Gateway(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        signed = b".".join([self.headers["webhook-id"].encode(), self.headers["webhook-timestamp"].encode(), body])
        key = base64.b64decode(options.secret.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        verified = hmac.compare_digest(self.headers["webhook-signature"], expected)
        print(json.dumps({"verified": verified, "body": json.loads(body)}), flush=True)
        self.send_response(200 if verified else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        # a handshake that a test breaks off is no news
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(options.chain, options.key)
server = Server(("127.0.0.1", 0), Gateway)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(json.dumps({"port": server.server_address[1]}), flush=True)
server.serve_forever()
