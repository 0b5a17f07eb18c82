"""An issuer of access tokens over TLS on the loopback interface, for tests.

It publishes its metadata and the keys that it is given. Its first line of
output is {"port": …}.
"""
import argparse, http.server, json, ssl

parser = argparse.ArgumentParser()
parser.add_argument("--chain", required=True)
parser.add_argument("--key", required=True)
parser.add_argument("--keys", required=True)
options = parser.parse_args()


class Issuer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = f"https://localhost:{self.server.server_address[1]}"
        body = {
            "/.well-known/openid-configuration": json.dumps({"issuer": name, "jwks_uri": f"{name}/keys"}),
            "/keys": options.keys,
        }.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("content-length", str(len(body or "")))
        self.end_headers()
        self.wfile.write((body or "").encode())

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        # a handshake that a test breaks off is no news
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(options.chain, options.key)
server = Server(("127.0.0.1", 0), Issuer)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(json.dumps({"port": server.server_address[1]}), flush=True)
server.serve_forever()
