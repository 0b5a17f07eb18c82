//! The file of `--config`, as it is written.

use std::{net::SocketAddr, path::PathBuf};

use serde::Deserialize;
use toml::Spanned;

use crate::{
    budgets::WrittenTenant,
    clients::WrittenClient,
    login_limits::{Lifetimes, Limits},
    login_settings::{WrittenApps, WrittenPasskeys},
    person::WrittenUser,
    policies::WrittenPolicies,
    secret_text::SecretText,
    senders::{WrittenSmtp, WrittenWebhook},
    state::WrittenRedis,
    theme::Theme,
    tokens,
};

/// The contents of the file. `config.toml` in this folder lists every key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    pub(crate) listen: Option<Spanned<String>>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) event_log: Option<PathBuf>,
    pub(crate) metrics_listen: Option<Spanned<SocketAddr>>,
    pub(crate) issuer: Option<Spanned<String>>,
    pub(crate) proxies: Option<Spanned<Vec<String>>>,
    pub(crate) operator_key: Option<Spanned<SecretText>>,
    #[serde(default)]
    pub(crate) insecure_print_codes: bool,
    pub(crate) account_pages: Option<Spanned<String>>,
    pub(crate) per_address: Option<Spanned<u32>>,
    #[serde(default)]
    pub(crate) leases: bool,
    #[serde(default)]
    pub(crate) redis_plans: bool,
    pub(crate) redis: Option<Spanned<WrittenRedis>>,
    pub(crate) tokens: Option<Spanned<tokens::Written>>,
    pub(crate) smtp: Option<Spanned<WrittenSmtp>>,
    pub(crate) sms: Option<Spanned<WrittenWebhook>>,
    pub(crate) whatsapp: Option<Spanned<WrittenWebhook>>,
    pub(crate) passkeys: Option<WrittenPasskeys>,
    pub(crate) authenticator_apps: Option<Spanned<WrittenApps>>,
    #[cfg(feature = "external-providers")]
    #[serde(default)]
    pub(crate) providers: Vec<Spanned<crate::providers::WrittenProvider>>,
    #[cfg(not(feature = "external-providers"))]
    #[serde(default)]
    pub(crate) providers: Vec<Spanned<serde::de::IgnoredAny>>,
    pub(crate) pages: Option<Spanned<Theme>>,
    pub(crate) lifetimes: Option<Spanned<Lifetimes>>,
    pub(crate) limits: Option<Spanned<Limits>>,
    /// Required, which `Written::facts` checks.
    pub(crate) tenants: Option<Vec<Spanned<WrittenTenant>>>,
    #[serde(default)]
    pub(crate) clients: Vec<Spanned<WrittenClient>>,
    pub(crate) policies: Option<Spanned<WrittenPolicies>>,
    #[serde(default)]
    pub(crate) users: Vec<Spanned<WrittenUser>>,
}
