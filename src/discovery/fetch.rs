//! Fetches the metadata and the keys of an issuer.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use tokio::time::timeout;

use super::{
    lifetime::Lifetime,
    metadata::{DescribedIssuer, Endpoints},
    missing::Missing,
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
    pub(super) async fn keys(&self) -> Result<(KeySet, Lifetime, Option<Endpoints>), Missing> {
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
            Ok((KeySet::parse(&text).ok_or(Missing::Malformed)?, Lifetime::from_cache_control(&headers), endpoints))
        };
        timeout(self.deadline, asked).await.map_err(|_| Missing::Outgoing(Failure::TooSlow))?
    }

    /// Reads the first of the two documents that exists.
    async fn metadata(&self, issuer: &DescribedIssuer) -> Result<(Uri, Endpoints), Missing> {
        let mut missing = Missing::Malformed;
        for address in &issuer.documents {
            match self.document(address).await.and_then(|(_, text)| issuer.parse_metadata(&text)) {
                Ok(found) => return Ok(found),
                // the second request would fail as well
                Err(Missing::Outgoing(failure)) => return Err(Missing::Outgoing(failure)),
                Err(other) => missing = other,
            }
        }
        Err(missing)
    }

    async fn document(&self, address: &Uri) -> Result<(HeaderMap, Bytes), Missing> {
        let mut request = Request::new(Body::empty());
        (*request.method_mut(), *request.uri_mut()) = (Method::GET, address.clone());
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("tollgate"));
        let answer = self.client.fetch_response(request, MOST_BYTES, self.deadline).await.map_err(Missing::Outgoing)?;
        let (head, text) = answer.into_parts();
        if head.status == StatusCode::OK { Ok((head.headers, text)) } else { Err(Missing::Status(head.status)) }
    }
}
