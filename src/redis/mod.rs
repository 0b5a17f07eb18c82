//! The connection to Redis or Valkey, on which everything shared by several processes is built.
//!
//! The client crate is used only in this folder.

mod config;
mod failure;
mod link;
mod script;
mod target;

pub use self::config::RedisConfig;
pub(crate) use self::{
    failure::{FailureKind, RedisFailure},
    link::Link,
    script::{Reply, Script, unexpected},
    target::Delivery,
};
