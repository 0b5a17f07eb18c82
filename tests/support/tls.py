"""A server over TLS on the loopback interface, for tests.

Its certificate is named on the command line. Its first line of output is {"port": …}.
"""
import argparse, http.server, json, ssl


def options(*more):
    """What stands on the command line: the certificate, and these."""
    parser = argparse.ArgumentParser()
    for name in ("chain", "key", *more):
        parser.add_argument(f"--{name}", required=True)
    return parser.parse_args()


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        # a handshake that a test breaks off is no news
        pass


def serve(options, handler):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.chain, options.key)
    server = Server(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()
