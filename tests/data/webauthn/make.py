#!/usr/bin/env python3
"""Makes the vectors in software.json with an authenticator in software.

The encodings come from python-fido2 and the signatures from cryptography, so nothing here is shared with the verifier
under test. Each vector is also verified by the server of python-fido2.

    pip install fido2==1.2.0 cryptography && python3 make.py > software.json
"""

import json
import os
from base64 import urlsafe_b64encode

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from fido2 import cose, features
from fido2.server import Fido2Server
from fido2.utils import sha256
from fido2.webauthn import (
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorAssertionResponse,
    AuthenticatorAttestationResponse,
    AuthenticationResponse,
    AuthenticatorData,
    CollectedClientData,
    PublicKeyCredentialRpEntity,
    RegistrationResponse,
)

features.webauthn_json_mapping.enabled = True

RP_ID = "example.com"
ORIGIN = "https://login.example.com"
FLAG = AuthenticatorData.FLAG


def b64(data):
    return urlsafe_b64encode(data).decode().rstrip("=")


def es256():
    key = ec.generate_private_key(ec.SECP256R1())
    return cose.ES256.from_cryptography_key(key.public_key()), lambda data: key.sign(data, ec.ECDSA(hashes.SHA256()))


def eddsa():
    key = ed25519.Ed25519PrivateKey.generate()
    return cose.EdDSA.from_cryptography_key(key.public_key()), key.sign


def rs256():
    key = rsa.generate_private_key(65537, 2048)
    sign = lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    return cose.RS256.from_cryptography_key(key.public_key()), sign


def vector(name, make, self_attested, flags, counts):
    public, sign = make()
    credential_id, handle = os.urandom(32), os.urandom(32)
    challenges = os.urandom(32), os.urandom(32)
    rp_id_hash = sha256(RP_ID.encode())

    attested = AttestedCredentialData.create(os.urandom(16) if self_attested else bytes(16), credential_id, public)
    created = CollectedClientData.create("webauthn.create", challenges[0], ORIGIN)
    data = AuthenticatorData.create(rp_id_hash, flags | FLAG.ATTESTED, counts[0], attested)
    statement = {"alg": public[3], "sig": sign(data + created.hash)} if self_attested else {}
    attestation = AttestationObject.create("packed" if self_attested else "none", data, statement)

    got = CollectedClientData.create("webauthn.get", challenges[1], ORIGIN)
    asserted = AuthenticatorData.create(rp_id_hash, flags, counts[1])
    signature = sign(asserted + got.hash)

    server = Fido2Server(PublicKeyCredentialRpEntity(name="x", id=RP_ID), attestation="direct", verify_origin=lambda it: it == ORIGIN)
    state = {"challenge": b64(challenges[0]), "user_verification": "required"}
    registered = RegistrationResponse(credential_id, AuthenticatorAttestationResponse(created, attestation))
    bound = server.register_complete(state, registered).credential_data
    state = {"challenge": b64(challenges[1]), "user_verification": "required"}
    response = AuthenticatorAssertionResponse(got, asserted, signature, handle)
    server.authenticate_complete(state, [bound], AuthenticationResponse(credential_id, response))

    credential = {"id": b64(credential_id), "rawId": b64(credential_id), "type": "public-key"}
    return {
        "name": name,
        "rp_id": RP_ID,
        "origin": ORIGIN,
        "algorithm": name.split()[0],
        "attestation": "self" if self_attested else "none",
        "user_handle": b64(handle),
        "registration_challenge": b64(challenges[0]),
        "registration": credential | {"response": {
            "clientDataJSON": b64(created), "attestationObject": b64(attestation), "transports": ["internal"],
        }},
        "assertion_challenge": b64(challenges[1]),
        "assertion": credential | {"response": {
            "clientDataJSON": b64(got), "authenticatorData": b64(asserted),
            "signature": b64(signature), "userHandle": b64(handle),
        }},
    }


both = FLAG.USER_PRESENT | FLAG.USER_VERIFIED
synced = both | FLAG.BACKUP_ELIGIBILITY | FLAG.BACKUP_STATE
vectors = []
for algorithm, make in [("ES256", es256), ("EdDSA", eddsa), ("RS256", rs256)]:
    vectors.append(vector(f"{algorithm} synced", make, False, synced, (0, 0)))
    vectors.append(vector(f"{algorithm} in one device, self attested", make, True, both, (1, 2)))
print(json.dumps(vectors, indent=1))
