//! Users who come back from another identity provider, and whose connection breaks.

use std::task::{Context, Poll, Waker};

use tollgate::{delivery::NoticeKind, event::EventKind};

use crate::{
    controlled_store::{ControlledStore, Running},
    enrolled::stored,
    forgotten_users::{Enrolment, prepared, world},
    own_account::{events, told},
    world::{ADA, Answer},
};

/// How a return from the provider ended after its connection broke.
#[derive(Debug, PartialEq)]
enum Return {
    Cancelled,
    Linked,
    /// It was answered before.
    Done,
}

/// Polls a return from the provider this many times, each up to the next operation of the store, and then drops it, as a
/// server does whose caller disconnects.
async fn disconnected(kind: &str, polls: usize) -> Return {
    let store = ControlledStore::default();
    let world = world(&store).await;
    let (mut browser, enrolment) = prepared(&world, kind).await;
    let Enrolment::Visit(target) = enrolment else { panic!("{kind} is no return") };
    store.yields();
    let mut answer = None;
    let mut call: Running<Answer> = Box::pin(async move { browser.get(&target).await });
    for _ in 0..polls {
        if let Poll::Ready(early) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            answer = Some(early);
            break;
        }
    }
    drop(call);
    for _ in 0..10 {
        world.settle().await;
    }
    let links = stored(&world, "u-ada").await.map_or(0, |row| row["links"].as_array().map_or(0, Vec::len));
    assert_eq!(told(&world).await, vec![(ADA.to_owned(), NoticeKind::LinkAdded); links], "{kind}, after {polls} polls");
    assert_eq!(events(&world, EventKind::SsoLinked), vec!["sso"; links], "{kind}, after {polls} polls");
    match (answer, links) {
        (Some(answer), 1) => {
            assert!(answer.header("location").ends_with("=ok"), "{kind}: {answer:?}");
            Return::Done
        }
        (None, 1) => Return::Linked,
        (None, 0) => Return::Cancelled,
        other => panic!("{kind}, after {polls} polls: {other:?}"),
    }
}

#[tokio::test]
async fn c084_a_link_is_announced_even_if_the_connection_breaks_while_it_is_stored() {
    for kind in ["link", "link by hook", "account page"] {
        let mut returns = Vec::new();
        while returns.last() != Some(&Return::Done) {
            returns.push(disconnected(kind, returns.len()).await);
        }
        let linked = returns.iter().filter(|it| **it == Return::Linked).count();
        // three operations store the link, and others read the user and count the notice
        assert!(linked > 5, "{kind}: {returns:?}");
        assert_eq!(returns[0], Return::Cancelled, "{kind}");
    }
}
