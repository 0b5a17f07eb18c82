//! A server or a cluster, and connections to it.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, PushInfo, PushKind, RedisError, RedisResult,
    TlsCertificates, Value,
    aio::MultiplexedConnection,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo},
    cmd,
    io::tcp::TcpSettings,
};

use super::{
    config::RedisConfig,
    failure::{FailureKind, RedisFailure},
};
use crate::util::error::ConfigError;

/// The longest time that an attempt to connect takes.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// A connection on which the other side acknowledges nothing for this long is closed, where the system supports it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) enum Target {
    Server(Arc<Client>),
    Cluster { usual: Arc<ClusterClient>, once: Arc<ClusterClient> },
}

#[derive(Clone)]
pub(super) enum Connection {
    Server(MultiplexedConnection),
    /// `once` sends no command twice.
    Cluster {
        usual: ClusterConnection,
        once: ClusterConnection,
    },
}

/// Whether a command may be executed twice if a connection is lost before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It is sent once more if the connection is lost, by the client of a cluster more often. Not for a caller that must know
    /// whether the server was replaced.
    Retried,
    /// The client of a cluster sends it again. The caller learns about a connection that was lost.
    Resent,
    /// It is never executed twice.
    Once,
}

impl Target {
    pub(super) fn new(config: &RedisConfig) -> Result<Self, ConfigError> {
        Self::build(config).map_err(|error| ConfigError::new("redis", format!("{config:?}"), error.to_string()))
    }

    fn build(config: &RedisConfig) -> RedisResult<Self> {
        if config.is_tls && rustls::crypto::CryptoProvider::get_default().is_none() {
            // the client takes the provider of the process; another one may have been installed meanwhile
            let _other = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let certificates =
            config.authorities.clone().map(|pem| TlsCertificates { client_tls: None, root_cert: Some(pem) });
        let tcp = TcpSettings::default().set_nodelay(true);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
        let nodes = config.nodes.iter().map(|node| {
            let settings = node.redis_settings().clone().set_skip_set_lib_name();
            node.clone().set_tcp_settings(tcp.clone()).set_redis_settings(settings)
        });
        if !config.is_cluster {
            let missing = || RedisError::from((ErrorKind::InvalidClientConfig, "no host"));
            let node = nodes.into_iter().next().ok_or_else(missing)?;
            let client = match certificates {
                Some(certificates) => Client::build_with_tls(node, certificates)?,
                None => Client::open(node)?,
            };
            return Ok(Self::Server(Arc::new(client)));
        }
        let nodes: Vec<ConnectionInfo> = nodes.collect();
        let with_retries = |most| {
            let builder = ClusterClientBuilder::new(nodes.clone())
                .retries(most)
                .min_retry_wait(2)
                .max_retry_wait(50)
                // a new connection waits for all nodes, also for those that cannot be reached, and there are two connections
                .connection_timeout(CONNECT / 4)
                // each call has its deadline; these are the client's own questions about the cluster
                .response_timeout(CONNECT)
                .tcp_settings(tcp.clone());
            let builder = match &certificates {
                Some(certificates) => builder.certs(certificates.clone()),
                None => builder,
            };
            builder.build().map(Arc::new)
        };
        // retries follow slots that have moved, and end with the deadline
        Ok(Self::Cluster { usual: with_retries(3)?, once: with_retries(0)? })
    }

    /// Connects, and checks that the server never evicts a key. `on_lost` is called when the connection is lost.
    pub(super) async fn connect(&self, on_lost: impl Fn() + Send + Sync + 'static) -> Result<Connection, RedisFailure> {
        let connect = async {
            let mut connection = self.open(on_lost).await.map_err(|error| RedisFailure::from(&error))?;
            check_eviction(&mut connection).await?;
            Ok(connection)
        };
        let late = |_| RedisFailure::late("the server did not answer in time");
        tokio::time::timeout(CONNECT, connect).await.map_err(late)?
    }

    async fn open(&self, on_lost: impl Fn() + Send + Sync + 'static) -> RedisResult<Connection> {
        match self {
            Self::Server(client) => {
                let on_push = move |push: PushInfo| {
                    if push.kind == PushKind::Disconnection {
                        on_lost();
                    }
                    Ok::<_, ()>(())
                };
                let settings = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None)
                    .set_pipeline_buffer_size(1024)
                    .set_push_sender(on_push);
                client.get_multiplexed_async_connection_with_config(&settings).await.map(Connection::Server)
            }
            // now, because to make a connection takes longer than a call may take
            Self::Cluster { usual, once } => Ok(Connection::Cluster {
                usual: usual.get_async_connection().await?,
                once: once.get_async_connection().await?,
            }),
        }
    }
}

impl Connection {
    pub(super) async fn send(&mut self, command: &Cmd, delivery: Delivery) -> RedisResult<Value> {
        match self {
            Self::Server(connection) => command.query_async(connection).await,
            Self::Cluster { usual, .. } if delivery != Delivery::Once => command.query_async(usual).await,
            Self::Cluster { once, .. } => command.query_async(once).await,
        }
    }

    /// Returns whether the connection is of no use after this error. A cluster restores its connections itself.
    pub(super) fn is_lost_after(&self, error: &RedisError) -> bool {
        match self {
            // a former primary has to be left
            Self::Server(_) => self.is_broken_after(error) || error.code() == Some("READONLY"),
            Self::Cluster { .. } => false,
        }
    }

    /// Returns whether the connection to a server ended, so that the command may or may not have been executed.
    pub(super) fn is_broken_after(&self, error: &RedisError) -> bool {
        matches!(self, Self::Server(_)) && (error.is_unrecoverable_error() || error.is_io_error())
    }
}

/// Returns an error if a server may remove live keys to make room, because that would forget spent units and revoked tokens. Where
/// the setting can't be read, it is not checked.
async fn check_eviction(connection: &mut Connection) -> Result<(), RedisFailure> {
    let mut command = cmd("INFO");
    command.arg("memory");
    let info = match connection {
        Connection::Server(connection) => command.query_async(connection).await,
        Connection::Cluster { usual, .. } => {
            let primaries = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            usual.route_command(command, primaries).await
        }
    };
    let info: Value = match info {
        Ok(info) => info,
        Err(error) if error.code() == Some("NOPERM") => return Ok(()),
        Err(error) => return Err(RedisFailure::from(&error)),
    };
    let mut texts = Vec::new();
    collect_texts(&info, &mut texts);
    let policies = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("maxmemory_policy:"));
    match policies.map(str::trim).find(|policy| *policy != "noeviction") {
        None => Ok(()),
        Some(policy) => {
            let text = format!("maxmemory-policy is {policy} and must be noeviction, or live entries may be removed");
            Err(RedisFailure::new(FailureKind::Misconfigured, text))
        }
    }
}

fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::BulkString(bytes) => texts.push(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } => texts.push(text.to_string()),
        Value::Array(values) => values.iter().for_each(|value| collect_texts(value, texts)),
        Value::Map(pairs) => pairs.iter().for_each(|(_, value)| collect_texts(value, texts)),
        _ => {}
    }
}
