"""A mail server on the loopback interface, for tests.

Its first line of output is {"port": …}; each letter that it takes is a line
more. It ends with its standard input. What it does with a letter depends on
whom it is for: refused@ 550, later@ 451 at first, hangs@ no answer to the data.
"""
import argparse, asyncio, json, logging, ssl, sys
from aiosmtpd.smtp import SMTP, AuthResult

parser = argparse.ArgumentParser()
parser.add_argument("--tls", choices=["none", "starttls", "implicit"], default="none")
parser.add_argument("--chain")
parser.add_argument("--key")
parser.add_argument("--user")
parser.add_argument("--password")
parser.add_argument("--seconds", type=float, default=0, help="how long each letter takes")
options = parser.parse_args()

# a handshake that a test breaks off is no news
logging.disable()
tried, connections = set(), set()


def say(**what):
    print(json.dumps(what), flush=True)


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        local = address.split("@")[0]
        if local == "refused":
            return "550 5.1.1 no such mailbox"
        if local == "later" and address not in tried:
            tried.add(address)
            return "451 4.7.1 come back later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        if envelope.rcpt_tos[0].startswith("hangs@"):
            await asyncio.sleep(3600)
        await asyncio.sleep(options.seconds)
        connections.add(session.peer)
        say(
            sender=envelope.mail_from,
            to=envelope.rcpt_tos,
            text=envelope.content.decode(),
            tls=session.ssl is not None or options.tls == "implicit",
            user=session.auth_data,
            connections=len(connections),
        )
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    login, password = data.login.decode(), data.password.decode()
    if (login, password) == (options.user, options.password):
        return AuthResult(success=True, auth_data=login)
    return AuthResult(success=False, handled=False)


async def main():
    context = None
    if options.tls != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.chain, options.key)
    starttls = options.tls == "starttls"

    def connection():
        return SMTP(
            Handler(),
            hostname="localhost",
            tls_context=context if starttls else None,
            require_starttls=starttls,
            auth_required=options.user is not None,
            auth_require_tls=starttls,
            authenticator=authenticate,
        )

    loop = asyncio.get_running_loop()
    implicit = context if options.tls == "implicit" else None
    server = await loop.create_server(connection, "127.0.0.1", 0, ssl=implicit)
    say(port=server.sockets[0].getsockname()[1])
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
