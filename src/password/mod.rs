//! Passwords: hashed with argon2id, off the async threads, and checked at the same cost whoever asks.
