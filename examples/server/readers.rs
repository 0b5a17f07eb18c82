//! The readers of the event log: tenants with their keys, operators with theirs, and everyone at this machine in the demo.

use std::net::IpAddr;

use axum::http::{HeaderMap, header::HOST, uri::Authority};
use tollgate::{
    ApiKeys, ConfigError, Head, PeerAddr,
    event::{Access, TenantsAndOperator, Viewer},
};

pub(crate) struct Readers {
    by_key: TenantsAndOperator<ApiKeys>,
    /// In the demo, the page opens without a key.
    is_demo: bool,
}

impl Readers {
    pub(crate) fn new(keys: ApiKeys, operator_key: Option<&str>, is_demo: bool) -> Result<Self, ConfigError> {
        let by_key = TenantsAndOperator::new(keys);
        let by_key = match operator_key {
            Some(key) => by_key.operator_key(key)?,
            None => by_key,
        };
        Ok(Self { by_key, is_demo })
    }
}

impl Access for Readers {
    fn viewer(&self, head: Head<'_>) -> Viewer {
        match self.is_demo && !has_key(head.headers()) && is_at_this_machine(head) {
            true => Viewer::Operator,
            false => self.by_key.viewer(head),
        }
    }
}

fn has_key(headers: &HeaderMap) -> bool {
    ["x-operator-key", crate::demo::KEY_HEADER, "authorization"].iter().any(|name| headers.contains_key(*name))
}

/// Returns whether a program of this machine asks for this machine. A page of another site could let its own name lead
/// here (DNS rebinding), but the browser then sends that name as the host. A proxy would make everyone local.
fn is_at_this_machine(head: Head<'_>) -> bool {
    let headers = head.headers();
    let is_local = |ip: IpAddr| ip.to_canonical().is_loopback();
    let peer = head.extensions().get::<PeerAddr>().is_some_and(|peer| is_local(peer.0.ip()));
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or(head.uri().authority().map(Authority::as_str)).and_then(|host| host.parse::<Authority>().ok());
    let is_own_name = host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_local)
    });
    let is_of_another_site = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    let is_forwarded = ["forwarded", "x-forwarded-for"].iter().any(|name| headers.contains_key(*name));
    peer && is_own_name && !is_of_another_site && !is_forwarded
}
