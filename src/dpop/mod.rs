//! Proofs of possession (DPoP, RFC 9449).
