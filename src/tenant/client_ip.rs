use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::{Extensions, HeaderName};

use super::{
    cidr::Cidr, error::TenantError, header::header_name, hops, id::LimitKey, source::TenantName, source::TenantSource,
};
use crate::{http::head::Head, util::error::ConfigError};

/// Finds the address of the client, so that each address has limits of its own.
///
/// The search starts at [`PeerAddr`], the other end of the connection, which can't be forged. Headers are read only if
/// the peer is one of your proxies, and from right to left. Each entry was written by the hop on its right, so the
/// first address that does not belong to a proxy is the closest to the client that can be trusted. Entries written by
/// the caller are further left and are never read.
///
/// * An entry without an address (`unknown`, empty, malformed) ends the search at the last proxy before it.
/// * If all entries are your proxies, the leftmost one is used.
/// * The search ends after 32 entries.
/// * The peer is found as [`PeerAddr`] or, with the feature `axum`, as axum's
///   `ConnectInfo<SocketAddr>`. If a framework stores it elsewhere, use
///   [`peer_by`](Self::peer_by).
/// * A request without a peer has no tenant. Rate limits answer it with a 500 and log a
///   warning, because the server is not set up correctly.
///
/// All requests from an IPv4 address share one key, and so do all from an IPv6 /64 network; see
/// [`ipv6_prefix`](Self::ipv6_prefix).
///
/// ```
/// use tollgate::{ClientIp, Head, PeerAddr};
///
/// let client_ip = ClientIp::behind(["10.0.0.0/8"])?;
/// let request = http::Request::get("/")
///     .header("x-forwarded-for", "203.0.113.9, 198.51.100.7, 10.0.0.2")
///     .extension(PeerAddr(([10, 0, 0, 1], 49152).into()))
///     .body(())
///     .unwrap();
/// assert_eq!(client_ip.address(Head::of_request(&request)), Some([198, 51, 100, 7].into()));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ClientIp {
    peer: Option<Arc<Peer>>,
    proxies: Box<[Cidr]>,
    /// A header with one address, which is read instead of the list in `X-Forwarded-For`.
    single: Option<HeaderName>,
    ipv6_prefix: u8,
}

type Peer = dyn Fn(Head<'_>) -> Option<SocketAddr> + Send + Sync;

impl ClientIp {
    /// Uses the peer of the connection and reads no header.
    pub fn peer() -> Self {
        Self { peer: None, proxies: Box::default(), single: None, ipv6_prefix: 64 }
    }

    /// Finds no address, which disables per-address limits: only the limits of each account slow down an address that
    /// guesses passwords or requests one-time codes. Prefer any other choice.
    pub fn unknown() -> Self {
        Self::peer().peer_by(|_| None)
    }

    /// Finds the client behind these proxies, given as addresses and ranges, in `X-Forwarded-For`.
    ///
    /// # Security
    ///
    /// List only your own proxies. A caller from such a range can impersonate any address.
    ///
    /// # Errors
    ///
    /// Returns an error if a range is malformed or the list is empty.
    pub fn behind<I>(proxies: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let proxies: Box<[_]> =
            proxies.into_iter().map(|range| Cidr::parse(range.as_ref())).collect::<Result<_, _>>()?;
        let reason = "must not be empty; without proxies use ClientIp::peer";
        ConfigError::refuse_if(proxies.is_empty(), "trusted proxies", "[]", reason)?;
        Ok(Self { proxies, ..Self::peer() })
    }

    /// Reads one address from a header such as `X-Real-IP` or `CF-Connecting-IP` instead of the list in
    /// `X-Forwarded-For`. If it does not have exactly one address, the proxy counts as the client. After
    /// [`peer`](Self::peer), this changes nothing.
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// let client_ip = ClientIp::behind(["10.0.0.0/8"])?.single_header("x-real-ip")?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    ///
    /// # Security
    ///
    /// The proxies must overwrite this header if a caller sends it.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` is not a valid header name.
    pub fn single_header(mut self, name: impl AsRef<str>) -> Result<Self, ConfigError> {
        self.single = Some(header_name("header of the client address", name.as_ref())?);
        Ok(self)
    }

    /// Finds the other end of the connection with a function, for frameworks that store it
    /// elsewhere.
    ///
    /// ```
    /// use tollgate::{ClientIp, Head};
    ///
    /// // tonic, served by its own transport
    /// use tonic::transport::server::TcpConnectInfo;
    /// let tonic = ClientIp::peer()
    ///     .peer_by(|head: Head<'_>| head.extensions().get::<TcpConnectInfo>()?.remote_addr());
    /// ```
    pub fn peer_by(mut self, peer: impl Fn(Head<'_>) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// Sets how many leading bits of an IPv6 address identify a client, from 32 to 128. Defaults to 64. Providers often
    /// give a customer a /56 or /48 network.
    ///
    /// # Errors
    ///
    /// Returns an error if the number is out of range.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(!(32..=128).contains(&bits), "IPv6 prefix", bits, "must be 32 to 128")?;
        self.ipv6_prefix = bits;
        Ok(self)
    }

    /// Returns the address of the client. IPv4 addresses are never written as IPv6.
    pub fn address(&self, head: Head<'_>) -> Option<IpAddr> {
        let peer = match &self.peer {
            Some(peer) => peer(head)?,
            None => peer_of(head.extensions())?,
        };
        let mut nearest = peer.ip().to_canonical();
        if let Some(name) = &self.single {
            let single = || hops::single_address(head.headers(), name);
            return Some(if self.trusts(nearest) { single().unwrap_or(nearest) } else { nearest });
        }
        let mut hops = hops::x_forwarded_for(head.headers());
        while self.trusts(nearest)
            && let Some(Some(hop)) = hops.next()
        {
            nearest = hop;
        }
        Some(nearest)
    }

    /// Returns the key under which requests of this client are counted, if its address is known.
    pub(crate) fn limit_key(&self, head: Head<'_>) -> Option<LimitKey> {
        self.address(head).map(|address| LimitKey::network(address, self.ipv6_prefix))
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|range| range.contains(address))
    }
}

crate::util::fmt::debug_fields!(ClientIp { proxies, single, ipv6_prefix });

fn peer_of(extensions: &Extensions) -> Option<SocketAddr> {
    let peer = extensions.get::<PeerAddr>().map(|peer| peer.0);
    #[cfg(feature = "axum")]
    let peer = peer.or_else(|| extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().map(|info| info.0));
    peer
}

impl TenantSource for ClientIp {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(self.limit_key(head).map(TenantName::from))
    }

    fn missing(&self, _: Head<'_>) -> TenantError {
        TenantError::internal("the address of the client is unknown")
    }
}

/// The address of the other end of the connection, as an extension of the request. The
/// loop that accepts connections inserts it:
///
/// ```
/// use tollgate::PeerAddr;
///
/// # let peer: std::net::SocketAddr = ([192, 0, 2, 1], 49152).into();
/// let mut request = http::Request::new("any body");
/// request.extensions_mut().insert(PeerAddr(peer));
/// ```
///
/// Frameworks that accept connections themselves store the address elsewhere. With the
/// feature `axum`, [`ClientIp`] also finds axum's `ConnectInfo<SocketAddr>`, which
/// `into_make_service_with_connect_info::<SocketAddr>()` inserts. For others, use
/// [`ClientIp::peer_by`].
///
/// Never fill it from a header. [`ClientIp`] reads headers, and decides by the peer whether
/// to trust them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

impl From<SocketAddr> for PeerAddr {
    fn from(address: SocketAddr) -> Self {
        Self(address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use http::{HeaderValue, Request};
    use proptest::prelude::*;

    use super::*;

    const PROXIES: [&str; 3] = ["10.0.0.0/8", "192.0.2.1", "fd00::/8"];

    fn address(source: &ClientIp, peer: IpAddr, header: &'static str, lines: &[Vec<u8>]) -> IpAddr {
        let mut request = Request::new(());
        request.extensions_mut().insert(PeerAddr((peer, 49152).into()));
        for line in lines {
            request.headers_mut().append(header, HeaderValue::from_bytes(line).unwrap());
        }
        source.address(Head::of_request(&request)).unwrap()
    }

    fn behind(peer: &str, lines: &[&str]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
        let source = ClientIp::behind(PROXIES).unwrap();
        address(&source, peer.parse().unwrap(), "x-forwarded-for", &lines).to_string()
    }

    #[test]
    fn a_peer_that_is_not_a_proxy_is_the_client_regardless_of_headers() {
        for line in ["203.0.113.9", "10.0.0.1", "", "unknown"] {
            assert_eq!(behind("198.51.100.7", &[line]), "198.51.100.7");
        }
        let peer = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(address(&ClientIp::peer(), peer, "x-forwarded-for", &[b"203.0.113.9".to_vec()]), peer);
    }

    #[test]
    fn the_rightmost_address_that_is_not_a_proxy_is_the_client() {
        assert_eq!(behind("10.0.0.1", &["203.0.113.9, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(behind("10.0.0.1", &["203.0.113.9, 198.51.100.7", "10.0.0.2, 192.0.2.1"]), "198.51.100.7");
        assert_eq!(behind("::ffff:10.0.0.1", &["::ffff:198.51.100.7, [fd00::1]:80"]), "198.51.100.7");
    }

    #[test]
    fn the_walk_ends_at_the_last_proxy_before_an_entry_without_an_address() {
        assert_eq!(behind("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(behind("10.0.0.1", &["198.51.100.7, unknown"]), "10.0.0.1");
        assert_eq!(behind("10.0.0.1", &["198.51.100.7, _hidden, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(behind("10.0.0.1", &["198.51.100.7", "", "10.0.0.2"]), "10.0.0.2");
        assert_eq!(behind("10.0.0.1", &["198.51.100.7, , 10.0.0.2"]), "10.0.0.2");
    }

    #[test]
    fn if_all_entries_are_proxies_the_leftmost_is_the_client() {
        assert_eq!(behind("10.0.0.1", &["10.0.0.4, 10.0.0.3", "10.0.0.2"]), "10.0.0.4");
    }

    #[test]
    fn only_the_chosen_header_is_read() {
        let read = |source: &ClientIp| {
            let request = Request::get("/")
                .header("x-forwarded-for", "203.0.113.1")
                .header("forwarded", "for=203.0.113.2")
                .extension(PeerAddr(([10, 0, 0, 1], 49152).into()))
                .body(())
                .unwrap();
            source.address(Head::of_request(&request)).unwrap().to_string()
        };
        let source = ClientIp::behind(PROXIES).unwrap();
        assert_eq!(read(&source), "203.0.113.1");
        assert_eq!(read(&source.single_header("x-real-ip").unwrap()), "10.0.0.1");
    }

    #[test]
    fn a_header_with_one_address_is_read_from_proxies_only_and_never_as_a_list() {
        let source = ClientIp::behind(PROXIES).unwrap().single_header("CF-Connecting-IP").unwrap();
        let read = |peer: &str, lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
            address(&source, peer.parse().unwrap(), "cf-connecting-ip", &lines).to_string()
        };
        assert_eq!(read("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(read("10.0.0.1", &["::ffff:203.0.113.9"]), "203.0.113.9");
        // also an address of a proxy, because the header has no further one
        assert_eq!(read("10.0.0.1", &["10.0.0.2"]), "10.0.0.2");
        assert_eq!(read("198.51.100.7", &["203.0.113.9"]), "198.51.100.7");
        for lines in [&[][..], &[""], &["unknown"], &["203.0.113.9, 198.51.100.7"], &["203.0.113.9", "198.51.100.7"]] {
            assert_eq!(read("10.0.0.1", lines), "10.0.0.1", "{lines:?}");
        }
        assert_eq!(ClientIp::peer().single_header("x y").unwrap_err().value(), "x y");
    }

    #[test]
    fn ipv6_tenants_are_networks_of_the_chosen_width() {
        let tenant = |source: ClientIp| {
            let mut request = Request::new(());
            let peer: Ipv6Addr = "2001:db8:1:2ff:3::4".parse().unwrap();
            request.extensions_mut().insert(PeerAddr((peer, 49152).into()));
            source.find(Head::of_request(&request)).unwrap().unwrap().to_key().unwrap().to_string()
        };
        assert_eq!(tenant(ClientIp::peer()), "ip:2001:db8:1:2ff::/64");
        assert_eq!(tenant(ClientIp::peer().ipv6_prefix(56).unwrap()), "ip:2001:db8:1:200::/56");
        assert_eq!(tenant(ClientIp::peer().ipv6_prefix(128).unwrap()), "ip:2001:db8:1:2ff:3::4/128");
    }

    #[test]
    fn a_request_without_a_peer_has_no_tenant() {
        let request = Request::get("/").header("x-forwarded-for", "203.0.113.9").body(()).unwrap();
        assert!(ClientIp::behind(PROXIES).unwrap().find(Head::of_request(&request)).unwrap().is_none());
    }

    #[test]
    fn a_bad_setting_is_a_config_error_that_names_it() {
        assert_eq!(ClientIp::behind(["10.0.0.0/8", "10.0.0.1/8"]).unwrap_err().value(), "10.0.0.1/8");
        assert_eq!(ClientIp::behind([""; 0]).unwrap_err().setting(), "trusted proxies");
        for bits in [0, 31, 129, 255] {
            assert_eq!(ClientIp::peer().ipv6_prefix(bits).unwrap_err().value(), bits.to_string());
        }
    }

    /// One entry of the header, and what it means.
    #[derive(Clone, Debug)]
    struct Entry {
        address: Option<IpAddr>,
        is_proxy: bool,
        spelling: u8,
        begins_a_line: bool,
    }

    fn any_address() -> impl Strategy<Value = (Option<IpAddr>, bool)> {
        prop_oneof![
            4 => any::<[u8; 3]>().prop_map(|[a, b, c]| (Some(IpAddr::from([10, a, b, c])), true)),
            1 => Just((Some(IpAddr::from([192, 0, 2, 1])), true)),
            3 => any::<u64>().prop_map(|low| (Some(Ipv6Addr::from_bits(0xfd << 120 | u128::from(low)).into()), true)),
            1 => any::<[u8; 2]>().prop_map(|[a, b]| (Some(IpAddr::from([198, 51, a, b])), false)),
            1 => any::<u64>().prop_map(|low| (Some(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(low)).into()), false)),
            1 => Just((None, false)),
        ]
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        (any_address(), any::<u8>(), prop::bool::weighted(0.3)).prop_map(
            |((address, is_proxy), spelling, begins_a_line)| Entry { address, is_proxy, spelling, begins_a_line },
        )
    }

    /// An address in one of the spellings of proxies.
    fn node(entry: &Entry) -> String {
        let mapped = |address: Ipv4Addr| address.to_ipv6_mapped();
        match (entry.address, entry.spelling % 8) {
            (None, 0 | 1) => String::from("unknown"),
            (None, 2 | 3) => String::from("_hidden"),
            (None, 4) => String::from("300.1.2.3"),
            (None, 5) => String::from("10.0.0.1:port"),
            (None, 6) => String::from("[fd00::1"),
            (None, _) => String::new(),
            (Some(IpAddr::V4(address)), 0..=2) => address.to_string(),
            (Some(IpAddr::V4(address)), 3 | 4) => format!("{address}:8080"),
            (Some(IpAddr::V4(address)), 5) => mapped(address).to_string(),
            (Some(IpAddr::V4(address)), 6) => format!("[{}]", mapped(address)),
            (Some(IpAddr::V4(address)), _) => format!("[{}]:1", mapped(address)),
            (Some(IpAddr::V6(address)), 0 | 1) => address.to_string(),
            (Some(IpAddr::V6(address)), 2 | 3) => address.to_string().to_uppercase(),
            (Some(IpAddr::V6(address)), 4 | 5) => format!("[{address}]"),
            (Some(IpAddr::V6(address)), _) => format!("[{address}]:65535"),
        }
    }

    fn x_forwarded_for(entry: &Entry) -> String {
        match entry.spelling / 8 % 4 {
            0 => node(entry),
            1 => format!(" {}\t", node(entry)),
            2 => format!("\"{}\"", node(entry)),
            _ => format!(" {}", node(entry)),
        }
    }

    fn lines(chain: &[Entry]) -> Vec<Vec<u8>> {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for entry in chain {
            match lines.last_mut() {
                Some(line) if !entry.begins_a_line => {
                    line.push(b',');
                    line.extend(x_forwarded_for(entry).into_bytes());
                }
                _ => lines.push(x_forwarded_for(entry).into_bytes()),
            }
        }
        lines
    }

    /// Returns the client according to the documentation: reads the chain from the right, beginning at
    /// the peer, and stops at the first address that is not a proxy.
    fn model(chain: &[Entry], peer: &Entry) -> Option<IpAddr> {
        let known: Vec<&Entry> = std::iter::once(peer)
            .chain(chain.iter().rev().take(32))
            .take_while(|entry| entry.address.is_some())
            .collect();
        known.iter().find(|entry| !entry.is_proxy).or(known.last())?.address
    }

    fn any_peer() -> impl Strategy<Value = Entry> {
        any_entry().prop_filter("a peer has an address", |entry| entry.address.is_some())
    }

    /// Any text that a header can have, often close to a valid one.
    fn any_writing() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(prop_oneof![b' '..=126, 128..=255_u8, Just(b'\t')], 0..60),
            "((,|\"|\\\\| |10\\.0\\.0\\.1|198\\.51\\.100\\.7|\\[fd00::1\\]|:80){0,20})".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn every_chain_in_every_spelling_agrees_with_the_model(
            chain in prop::collection::vec(any_entry(), 0..40),
            peer in any_peer(),
        ) {
            let source = ClientIp::behind(PROXIES).unwrap();
            let expected = model(&chain, &peer).unwrap();
            let from = peer.address.unwrap();
            prop_assert_eq!(address(&source, from, "x-forwarded-for", &lines(&chain)), expected);
        }

        #[test]
        fn entries_written_by_the_client_have_no_effect(
            proxies in prop::collection::vec(any_entry().prop_filter("a proxy", |entry| entry.is_proxy), 0..4),
            client in any_peer().prop_filter("no proxy", |entry| !entry.is_proxy),
            written in prop::collection::vec(any_writing(), 0..4),
            is_same_line: bool,
        ) {
            let chain: Vec<Entry> = std::iter::once(client.clone()).chain(proxies).collect();
            let mut all = written.clone();
            let mut appended = lines(&chain);
            if is_same_line && let Some(last) = all.last_mut() {
                last.push(b',');
                last.extend(appended.remove(0));
            }
            all.extend(appended);
            let source = ClientIp::behind(PROXIES).unwrap();
            let found = address(&source, [10, 0, 0, 1].into(), "x-forwarded-for", &all);
            prop_assert_eq!(found, client.address.unwrap());
        }

        #[test]
        fn malformed_headers_never_produce_an_address_they_do_not_contain(written in prop::collection::vec("[!-9;-~ ]{0,60}", 0..4)) {
            // without colons and dots it contains no address
            let written: Vec<_> = written.iter().map(|line| line.replace('.', "_").into_bytes()).collect();
            let peer = IpAddr::from([10, 0, 0, 1]);
            let source = ClientIp::behind(PROXIES).unwrap();
            prop_assert_eq!(address(&source, peer, "x-forwarded-for", &written), peer);
        }
    }
}
