#!/usr/bin/env python3
"""Converts the test vectors of WebAuthn Level 3 (§16) to specification.json.

    git clone https://github.com/w3c/webauthn && python3 specification.py < webauthn/index.bs > specification.json
"""

import json
import re
import sys
from base64 import urlsafe_b64encode

text = sys.stdin.read()
vectors = []
for name, body in re.findall(r"^## ([^\n]*?) ## \{#sctn-test-vectors-(?!attestation)[^\n]*\n(.*?)(?=^##? )", text, re.S | re.M):
    registration, assertion = body.split("authentication ceremony|", 1)
    value = lambda part, key: bytes.fromhex(re.search(rf"^{key} = h'([0-9a-f]*)'", part, re.M)[1])
    b64 = lambda part, key: urlsafe_b64encode(value(part, key)).decode().rstrip("=")
    credential = {"id": b64(registration, "credential_id"), "rawId": b64(registration, "credential_id"), "type": "public-key"}
    vectors.append({
        "name": name,
        "registration_challenge": b64(registration, "challenge"),
        "registration": credential | {"response": {
            key: b64(registration, key) for key in ("clientDataJSON", "attestationObject")
        }},
        "assertion_challenge": b64(assertion, "challenge"),
        "assertion": credential | {"response": {
            key: b64(assertion, key) for key in ("clientDataJSON", "authenticatorData", "signature")
        }},
    })
print(json.dumps(vectors, indent=1))
