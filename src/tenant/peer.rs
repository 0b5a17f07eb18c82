use std::net::SocketAddr;

/// The address of the other end of the connection, as an extension of the
/// request. The loop that accepts connections puts it there:
///
/// ```
/// use tollgate::PeerAddr;
///
/// # let peer: std::net::SocketAddr = ([192, 0, 2, 1], 49152).into();
/// let mut request = http::Request::new("any body");
/// request.extensions_mut().insert(PeerAddr(peer));
/// ```
///
/// Frameworks that accept connections themselves keep the address elsewhere;
/// [`ClientIp::peer_by`](super::ClientIp::peer_by) finds it there.
///
/// Never fill it from a header: [`ClientIp`](super::ClientIp) reads those, and
/// decides by the peer whether to believe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

impl From<SocketAddr> for PeerAddr {
    fn from(address: SocketAddr) -> Self {
        Self(address)
    }
}
