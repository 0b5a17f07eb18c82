//! The login state machine: pure, without I/O.
