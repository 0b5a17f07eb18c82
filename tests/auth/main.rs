//! The login service from outside: whole answers to whole requests, as a browser or a program meets them.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod access_token;
mod account_changes;
mod account_contacts;
mod account_deletion;
mod account_enrolment;
mod account_faults;
#[cfg(feature = "external-providers")]
mod account_linking;
mod account_matrix;
mod account_password;
mod account_sessions;
mod account_unlock;
mod audit_bodies;
mod audit_events;
mod audit_limits;
mod audit_lockout;
mod audit_password_queue;
mod audit_tokens;
mod audit_unverified;
mod authenticate;
mod authenticators;
mod authorize;
mod budget;
mod choices;
mod code_ceiling;
mod code_replay;
mod complete;
mod confidential_clients;
mod consent;
mod consent_pages;
mod controlled_store;
mod cors;
mod dpop;
mod end_everything;
mod ended_meanwhile;
mod enrol_matrix;
mod enrol_sequences;
mod enrolled;
mod errors;
mod external_passwords;
mod failing_store;
mod family_limits;
mod faults;
mod first_party;
mod first_second_factor;
mod five_tenants;
mod flow;
#[cfg(feature = "external-providers")]
mod forgotten_users;
mod full_store;
#[cfg(feature = "tracing")]
mod hook_errors;
mod id_token;
mod id_token_on_refresh;
#[cfg(feature = "external-providers")]
#[path = "../support/identity_provider.rs"]
mod identity_provider;
mod introspect;
mod issued_tokens;
mod jwks;
mod keep_alive;
mod languages;
#[path = "../support/late_bodies.rs"]
#[expect(dead_code, reason = "not every test uses all of it")]
mod late_bodies;
mod lifetimes;
mod last_sign_in_method;
mod life_faults;
mod life_matrix;
#[cfg(feature = "tracing")]
mod life_secrets;
mod life_sequences;
#[cfg(feature = "tracing")]
mod logged;
mod login_cookies;
mod login_user;
mod logout;
mod lost_revocations;
mod machine_clients;
mod matrix;
mod message_limits;
mod metadata;
#[cfg(feature = "external-providers")]
mod method_matrix;
mod notice_limits;
#[cfg(feature = "external-providers")]
mod notices_after_faults;
mod oidc_parameters;
mod openapi;
mod otp;
mod own_account;
mod page;
mod parallel_logins;
mod passkey;
mod passkey_enrolment;
mod password;
mod password_overload;
#[path = "../support/programs.rs"]
#[expect(clippy::print_stderr, reason = "skipped tests print a message")]
mod programs;
mod policy_after_changes;
mod pushed;
mod races;
mod random_provider;
mod random_runs;
#[path = "../support/redis_server.rs"]
#[allow(dead_code, clippy::expect_used, reason = "each test program uses some of it")]
mod redis_server;
mod refresh;
mod renamed_users;
mod request_bodies;
mod resources;
mod restart;
mod revocations;
mod revoke;
mod route_requirements;
mod second_factor;
mod reset;
mod second_steps;
mod sequences;
mod session_sharing;
mod several_tabs;
mod shared_limits;
mod sign_up;
mod soft_passkey;
mod special_worlds;
mod sso;
#[cfg(feature = "external-providers")]
mod sso_accounts;
#[cfg(feature = "external-providers")]
mod sso_answers;
#[cfg(feature = "external-providers")]
mod sso_callback;
#[cfg(feature = "external-providers")]
mod sso_foreign;
#[cfg(feature = "external-providers")]
mod sso_connections;
#[cfg(feature = "external-providers")]
mod sso_disconnects;
#[cfg(feature = "external-providers")]
mod sso_fresh;
#[cfg(feature = "external-providers")]
mod sso_github;
#[cfg(feature = "external-providers")]
mod sso_links;
#[cfg(feature = "external-providers")]
mod sso_mix_up;
#[cfg(feature = "external-providers")]
mod sso_outage;
#[cfg(feature = "external-providers")]
mod sso_provider;
#[cfg(all(feature = "external-providers", feature = "tracing"))]
mod sso_reasons;
#[cfg(feature = "external-providers")]
mod sso_requests;
#[cfg(feature = "external-providers")]
mod sso_unlinked;
mod start;
mod status;
mod step_up;
mod store_calls;
mod stranger_rows;
mod throttle;
mod token;
mod token_call_rules;
mod token_claims;
mod token_faults;
mod token_identity;
mod token_matrix;
mod token_races;
mod token_requests;
mod token_restart;
mod token_sequences;
mod token_store_calls;
mod unknown_users;
mod userinfo;
mod vouched_credentials;
mod weak_credentials;
mod weak_second_factor;
mod wire_text;
mod world;
