//! [`RedisConfig`]: where the server is, and how to talk to it.

use std::{
    any::Any,
    sync::{Arc, Weak},
    time::Duration,
};

use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::util::error::ConfigError;

/// The connection of all objects that share one, or nothing if none of them exists.
type SharedConnection = tokio::sync::Mutex<Weak<dyn Any + Send + Sync>>;

/// The address and settings of a Redis or Valkey server or cluster (feature `redis`).
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::RedisConfig;
///
/// let config = RedisConfig::new("rediss://app@redis.internal:6380")?
///     .password("from a secret store")
///     .key_prefix("login")?
///     .deadline(Duration::from_millis(250))?;
/// # let _ = config;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct RedisConfig {
    pub(super) nodes: Vec<ConnectionInfo>,
    shown: String,
    pub(crate) is_cluster: bool,
    pub(super) is_tls: bool,
    pub(crate) prefix: String,
    deadline: Option<Duration>,
    pub(super) authorities: Option<Vec<u8>>,
    pub(super) connection: Option<Arc<SharedConnection>>,
}

impl RedisConfig {
    /// Parses a URL of the form `redis://[user[:password]@]host[:port][/database]`.
    ///
    /// - `rediss://` uses TLS. `valkey://` and `valkeys://` mean the same as `redis://` and `rediss://`.
    /// - Several hosts, separated by commas, are nodes of one cluster: `redis://a:7000,b:7000`. One of them must be
    ///   reachable at the start, and the others are found through it. For one host, add `?cluster=true`.
    /// - Special characters in the user and the password are percent-encoded. [`password`](Self::password) takes them
    ///   as they are.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid. The error does not show the password.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        let shown = without_password(url);
        let invalid = |reason: &'static str| ConfigError::new("redis URL", &shown, reason);
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("must begin with redis:// or rediss://"))?;
        let scheme = match scheme {
            "redis" | "valkey" => "redis",
            "rediss" | "valkeys" => "rediss",
            _ => return Err(invalid("must begin with redis:// or rediss://")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_cluster = match query {
            "" => rest.contains(','),
            "cluster=true" => true,
            _ => return Err(invalid("the only parameter is cluster=true")),
        };
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').map_or((String::new(), authority), |(user, hosts)| {
            let user = if user.contains(':') { user.to_owned() } else { format!("{user}:") };
            (format!("{user}@"), hosts)
        });
        let node = |host: &str| {
            if host.is_empty() {
                return Err(invalid("must name a host"));
            }
            let node = format!("{scheme}://{user}{host}/{database}").into_connection_info();
            node.map_err(|_| invalid("must be like redis://user:password@host:6379/0"))
        };
        let nodes = hosts.split(',').map(node).collect::<Result<Vec<_>, _>>()?;
        if is_cluster && nodes.iter().any(|node| node.redis_settings().db() != 0) {
            return Err(invalid("a cluster has only database 0"));
        }
        let config = Self {
            nodes,
            shown,
            is_cluster,
            is_tls: scheme == "rediss",
            prefix: "tollgate".into(),
            deadline: None,
            authorities: None,
            connection: None,
        };
        // RESP3 tells at once when a connection is lost
        Ok(if is_cluster { config } else { config.on_nodes(|own| own.set_protocol(ProtocolVersion::RESP3)) })
    }

    /// Sets the user. Overrides the one in the URL.
    pub fn user(self, name: &str) -> Self {
        self.on_nodes(|own| own.set_username(name))
    }

    /// Sets the password. Overrides the one in the URL.
    pub fn password(self, password: &str) -> Self {
        self.on_nodes(|own| own.set_password(password))
    }

    /// Sets the prefix of all keys, so that several applications can share a server. Defaults to `tollgate`. A colon follows
    /// it, so it can't contain one, and keys of different prefixes never collide. All limiters of one prefix that have no
    /// [name](crate::limit::SharedLimiterBuilder::name) share their budgets.
    ///
    /// # Errors
    ///
    /// Returns an error unless the prefix has 1 to 64 letters, digits, `.`, `_` or `-`.
    pub fn key_prefix(mut self, prefix: &str) -> Result<Self, ConfigError> {
        ConfigError::check_word("redis key prefix", prefix, 64)?;
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// Sets the longest time that a call waits, even while the connection is being restored. Defaults to 500 ms for a
    /// store, and to 100 ms for a limiter or plans.
    ///
    /// # Errors
    ///
    /// Returns an error unless it is between 1 ms and 60 seconds.
    pub fn deadline(mut self, longest: Duration) -> Result<Self, ConfigError> {
        let range = Duration::from_millis(1)..=Duration::from_secs(60);
        ConfigError::check_range("redis deadline", longest, range, "must be from 1 ms to 60 s")?;
        self.deadline = Some(longest);
        Ok(self)
    }

    /// Trusts only the certificate authorities in this PEM file. Defaults to the authorities that the operating system
    /// trusts.
    pub fn certificate_authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities = Some(pem.into());
        self.connection = None;
        self
    }

    /// Lets all objects that are connected with clones of this configuration, such as a store, a limiter and plans,
    /// share one connection. By default, each has its own. Clones may have a different [prefix](Self::key_prefix) and
    /// [deadline](Self::deadline). Several limiters with different plans need different
    /// [names](crate::limit::SharedLimiterBuilder::name).
    ///
    /// Connect all of them in the same tokio runtime. The connection is closed when the last one is dropped. User, password and
    /// authorities belong to the connection, so set them first: setting one of them later ends the sharing.
    ///
    /// ```no_run
    /// use tollgate::{Limiter, Plans, Quota, store::{Redis, RedisConfig}};
    ///
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = RedisConfig::new("redis://localhost:6379")?.share_connection();
    /// let store = Redis::connect_with(config.clone()).await?;
    /// let limiter = Limiter::redis(config, Plans::new(Quota::per_minute(600)?)).connect().await?;
    /// # drop((store, limiter));
    /// # Ok(())
    /// # }
    /// ```
    pub fn share_connection(mut self) -> Self {
        let nothing: Weak<()> = Weak::new();
        self.connection = Some(Arc::new(SharedConnection::new(nothing)));
        self
    }

    fn on_nodes(mut self, change: impl Fn(redis::RedisConnectionInfo) -> redis::RedisConnectionInfo) -> Self {
        let changed = |node: ConnectionInfo| {
            let settings = change(node.redis_settings().clone());
            node.set_redis_settings(settings)
        };
        self.nodes = self.nodes.into_iter().map(changed).collect();
        self.connection = None;
        self
    }

    pub(crate) fn deadline_or(&self, default: Duration) -> Duration {
        self.deadline.unwrap_or(default)
    }
}

// Shows the server, without user and password.
crate::util::fmt::debug_fields!(RedisConfig, |own| url: own.shown, prefix: own.prefix, deadline: own.deadline);

/// Removes user and password from a URL, which may be malformed.
fn without_password(url: &str) -> String {
    let after = url.find("://").map_or(0, |end| end + "://".len());
    let (scheme, rest) = url.split_at(after);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    format!("{scheme}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_servers_and_clusters() {
        let of = |url: &str| RedisConfig::new(url).unwrap();
        let plain = of("redis://localhost");
        assert!(!plain.is_cluster && !plain.is_tls);
        assert_eq!(plain.nodes.len(), 1);
        let full = of("valkeys://us%40er:p%2Fw@cache.example:6380/3");
        let settings = full.nodes[0].redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("us@er"), Some("p/w"), 3));
        assert!(full.is_tls && !full.is_cluster);
        let named = of("redis://app@localhost").password("a/b@c");
        let settings = named.nodes[0].redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("app"), Some("a/b@c")));
        let cluster = of("redis://u:p@a:7000,b:7001");
        assert!(cluster.is_cluster && cluster.nodes.len() == 2);
        assert_eq!(cluster.nodes[1].redis_settings().password(), Some("p"));
        assert!(of("redis://a?cluster=true").is_cluster);
    }

    #[test]
    fn bad_urls_are_refused_and_show_no_password() {
        for url in [
            "",
            "localhost",
            "u:hunter2@h",
            "http://u:hunter2@h",
            "redis://",
            "redis://u:hunter2@",
            "redis://a,,b",
            "redis://h/x",
            "redis://h:port",
            "redis://h?x=1",
            "redis://u:hunter2@a,b/1",
            "redis://u:hunter2@h?cluster=maybe",
        ] {
            let error = RedisConfig::new(url).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let error = RedisConfig::new("localhost").unwrap_err().to_string();
        assert_eq!(error, "redis URL: localhost is not usable: must begin with redis:// or rediss://");
        let shown = format!("{:?}", RedisConfig::new("redis://u:hunter2@h").unwrap());
        assert!(shown.contains("redis://h") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn bad_settings_are_refused() {
        let config = || RedisConfig::new("redis://h").unwrap();
        for prefix in ["", "{x}", "a b", &"x".repeat(65)] {
            assert!(config().key_prefix(prefix).is_err());
        }
        // the epoch of the store `tollgate:limit` would be the budget of the tenant `5`
        for prefix in ["tollgate:limit", ":", "a:", ":a"] {
            assert!(config().key_prefix(prefix).is_err(), "b06");
        }
        assert!(config().key_prefix("app-1_a.b").is_ok());
        assert!(config().deadline(Duration::ZERO).is_err());
        assert!(config().deadline(Duration::from_secs(61)).is_err());
    }
}
