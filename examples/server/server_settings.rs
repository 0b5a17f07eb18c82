//! Settings of the file that flags have, too, and where counters are served.

use std::{net::SocketAddr, path::Path, path::PathBuf};

use crate::{help, listen::Listen, problems::Problems, state::RedisServer, written::Written};

/// Settings that flags can override.
#[derive(Default)]
pub(crate) struct ServerSettings {
    pub(crate) listen: Option<Listen>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) redis: Option<RedisServer>,
    pub(crate) event_log: Option<PathBuf>,
    /// Where counters are served.
    pub(crate) metrics: Option<SocketAddr>,
}

impl Written {
    pub(crate) fn server(&self, directory: &Path, problems: &mut Problems<'_>) -> ServerSettings {
        let metrics = self.metrics_listen.as_ref().and_then(|address| {
            problems.read("metrics_listen: ", address, |address| match cfg!(feature = "metrics") {
                true => Ok(*address),
                false => Err(help::without_feature("metrics")),
            })
        });
        let listen = self.listen.as_ref();
        ServerSettings {
            listen: listen.and_then(|listen| problems.read("listen: ", listen, |text| Listen::parse(text))),
            data: self.data.as_ref().map(|path| directory.join(path)),
            redis: self
                .redis
                .as_ref()
                .and_then(|written| problems.read("redis: ", written, |redis| redis.read(directory))),
            event_log: self.event_log.as_ref().map(|path| directory.join(path)),
            metrics,
        }
    }
}
