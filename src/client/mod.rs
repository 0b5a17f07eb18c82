//! The applications that send people here to sign in: `Client`, the `Clients` trait and `ClientTable`.
