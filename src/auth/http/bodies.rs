//! Bounds how many request bodies are received at the same time.

use std::{
    collections::{HashMap, hash_map::Entry},
    iter::zip,
    net::Ipv6Addr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::{http::drain::discard, tenant::LimitKey, util::lock::lock};

/// Counts the bodies that are being received, in total, per address, and per IPv6 network that one customer can have.
/// Each holds memory and a connection for as long as its sender likes, up to the time limit of a body.
pub(crate) struct BodyLimits {
    pub(crate) total: usize,
    pub(crate) per_address: usize,
    open: Mutex<OpenBodies>,
}

#[derive(Default)]
struct OpenBodies {
    total: usize,
    /// Only addresses and networks with an open body, so `total` bounds this map too.
    by_source: HashMap<LimitKey, usize>,
}

/// How many addresses full of bodies a network of one customer can have.
const ADDRESSES_PER_SITE: usize = 4;

/// Why a body is not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooManyBodies {
    OfAddress,
    InTotal,
}

/// The place of a body, released on drop.
pub(crate) struct BodyPlace {
    limits: Arc<BodyLimits>,
    sources: [Option<LimitKey>; 2],
}

impl BodyLimits {
    pub(crate) const TOTAL: usize = 1_000;
    pub(crate) const PER_ADDRESS: usize = 50;

    pub(crate) fn new(total: usize, per_address: usize) -> Self {
        Self { total, per_address, open: Mutex::default() }
    }

    /// Takes a place for a body from this address. Without a known address, only the total counts.
    pub(crate) fn take_body_place(self: &Arc<Self>, address: Option<LimitKey>) -> Result<BodyPlace, TooManyBodies> {
        let mut open = lock(&self.open);
        if open.total >= self.total {
            return Err(TooManyBodies::InTotal);
        }
        let site = address.as_ref().and_then(ipv6_site);
        let sources = [address, site];
        for (source, most) in zip(&sources, [self.per_address, self.per_address.saturating_mul(ADDRESSES_PER_SITE)]) {
            if source.as_ref().and_then(|source| open.by_source.get(source)).is_some_and(|own| *own >= most) {
                return Err(TooManyBodies::OfAddress);
            }
        }
        for source in sources.iter().flatten() {
            *open.by_source.entry(source.clone()).or_default() += 1;
        }
        open.total += 1;
        Ok(BodyPlace { limits: Arc::clone(self), sources })
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        let mut open = lock(&self.limits.open);
        open.total -= 1;
        for source in self.sources.iter_mut().filter_map(Option::take) {
            if let Entry::Occupied(mut own) = open.by_source.entry(source) {
                *own.get_mut() -= 1;
                if *own.get() == 0 {
                    own.remove();
                }
            }
        }
    }
}

/// Returns the /48 network of an IPv6 network. Providers give so much to one customer.
fn ipv6_site(address: &LimitKey) -> Option<LimitKey> {
    let (network, _) = address.as_str().strip_prefix("ip:")?.split_once('/')?;
    let site = Ipv6Addr::from_bits(network.parse::<Ipv6Addr>().ok()?.to_bits() >> 80 << 80);
    let site = LimitKey::trusted(format!("ip:{site}/48").as_bytes());
    (site != *address).then_some(site)
}

/// The body of a request, without its type. It keeps its place until it ends. Bodies that are empty from the start need none.
pub(crate) struct RequestBody {
    /// `None` once it has ended.
    body: Option<Pin<Box<dyn Body<Data = Bytes, Error = ()> + Send>>>,
    place: Option<BodyPlace>,
    /// Whether some of it was read. An endpoint reads all of it, or gives it up.
    has_begun: bool,
}

impl RequestBody {
    pub(crate) fn new(body: impl Body<Data = Bytes> + Send + 'static) -> Self {
        Self { body: Some(Box::pin(Unexplained { body })), place: None, has_begun: false }
    }

    /// Takes a place, unless the body has one or needs none.
    pub(crate) fn ensure_body_place(
        &mut self,
        limits: &Arc<BodyLimits>,
        address: Option<LimitKey>,
    ) -> Result<(), TooManyBodies> {
        if self.place.is_none() && !self.is_end_stream() {
            self.place = Some(limits.take_body_place(address)?);
        }
        Ok(())
    }

    /// Reads the body within the limits of one that is used, unless that was tried before. Returns whether it has ended.
    pub(crate) async fn drain(&mut self) -> bool {
        self.is_end_stream() || (!self.has_begun && self.place.is_some() && discard(self).await)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = ();

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        self.has_begun = true;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        // trailers end a body
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            (self.body, self.place) = (None, None);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

pin_project! {
    /// A body without its error, because callers only learn that it could not be read.
    struct Unexplained<B> {
        #[pin]
        body: B,
    }
}

impl<B: Body> Body for Unexplained<B> {
    type Data = B::Data;
    type Error = ();

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, ()>>> {
        self.project().body.poll_frame(cx).map_err(|_| ())
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a08_places_are_bounded_and_come_back() {
        let limits = Arc::new(BodyLimits::new(3, 2));
        let address = |last: u8| Some(LimitKey::address([192, 0, 2, last].into()));
        let (first, second) =
            (limits.take_body_place(address(1)).unwrap(), limits.take_body_place(address(1)).unwrap());
        assert_eq!(limits.take_body_place(address(1)).err(), Some(TooManyBodies::OfAddress));
        let third = limits.take_body_place(None).unwrap();
        assert_eq!(limits.take_body_place(address(2)).err(), Some(TooManyBodies::InTotal));
        drop(first);
        assert!(limits.take_body_place(address(2)).is_ok());
        drop((second, third));
        let open = lock(&limits.open);
        assert_eq!((open.total, open.by_source.len()), (0, 0));
    }

    #[test]
    fn a_customer_with_many_ipv6_networks_cannot_take_all_places() {
        let limits = Arc::new(BodyLimits::new(100, 2));
        let take = |text: &str| limits.take_body_place(Some(LimitKey::address(text.parse().unwrap())));
        let mut held: Vec<_> = (0..8).map(|at| take(&format!("2001:db8:7:{at}::1")).unwrap()).collect();
        assert_eq!(take("2001:db8:7:ffff::1").err(), Some(TooManyBodies::OfAddress));
        held.push(take("2001:db8:8::1").unwrap());
        held.remove(0);
        held.push(take("2001:db8:7:ffff::1").unwrap());
        held.clear();
        let open = lock(&limits.open);
        assert_eq!((open.total, open.by_source.len()), (0, 0));
    }
}
