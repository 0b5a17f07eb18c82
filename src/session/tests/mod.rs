mod model;
mod races;

use super::{Session, Sessions, presented::Presented};
use crate::{secret::Digest, store::StoreError, testing::block_on};

/// A request that presents this secret.
fn present(sessions: &Sessions, digest: Digest) -> Result<Option<Session>, StoreError> {
    block_on(sessions.find(Presented::One(digest), None).wait())
}
