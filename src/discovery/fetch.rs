//! Fetches the metadata and the keys of an issuer.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use tokio::time::timeout;

use super::{
    lifetime::Lifetime,
    metadata::{DescribedIssuer, Endpoints, MALFORMED},
};
use crate::{
    http::body::Body,
    jose::KeySet,
    support::outgoing::{Failure, Outgoing},
};

/// The maximum length of a document in bytes.
const MOST_BYTES: usize = 256 * 1024;

/// How to fetch the keys of an issuer.
pub(crate) struct Fetch {
    pub(crate) place: KeysLocation,
    pub(crate) client: Outgoing,
    /// For all requests together.
    pub(crate) deadline: Duration,
}

pub(crate) enum KeysLocation {
    /// At the URL that the issuer's metadata names.
    Described(DescribedIssuer),
    Known(Uri),
}

impl Fetch {
    /// Fetches the current keys, and the endpoints of an issuer with metadata. The metadata is read each time, so that it can
    /// change.
    pub(super) async fn keys(&self) -> Result<(KeySet, Lifetime, Option<Endpoints>), String> {
        let asked = async {
            let (headers, text, endpoints) = match &self.place {
                KeysLocation::Known(address) => {
                    let (headers, text) = self.document(address).await?;
                    (headers, text, None)
                }
                KeysLocation::Described(issuer) => {
                    let (address, endpoints) = self.metadata(issuer).await?;
                    let (headers, text) = self.document(&address).await?;
                    (headers, text, Some(endpoints))
                }
            };
            Ok((KeySet::parse(&text).ok_or(MALFORMED)?, Lifetime::from_cache_control(&headers), endpoints))
        };
        timeout(self.deadline, asked).await.map_err(|_| Failure::TooSlow.to_string())?
    }

    /// Reads the first of the two documents that is usable.
    async fn metadata(&self, issuer: &DescribedIssuer) -> Result<(Uri, Endpoints), String> {
        let mut missing = String::new();
        for address in &issuer.documents {
            match self.document(address).await.and_then(|(_, text)| Ok(issuer.parse_metadata(&text)?)) {
                Ok(found) => return Ok(found),
                Err(why) => missing = why,
            }
        }
        Err(missing)
    }

    async fn document(&self, address: &Uri) -> Result<(HeaderMap, Bytes), String> {
        let mut request = Request::new(Body::empty());
        (*request.method_mut(), *request.uri_mut()) = (Method::GET, address.clone());
        let answer = self.client.fetch_response(request, MOST_BYTES, self.deadline).await;
        let (head, text) = answer.map_err(|failure| failure.to_string())?.into_parts();
        match head.status {
            StatusCode::OK => Ok((head.headers, text)),
            status => Err(format!("the issuer responded with {}", status.as_u16())),
        }
    }
}
