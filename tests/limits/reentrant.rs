//! User code calls the limiter from everywhere. No lock is held while it runs, or it would wait for itself.

use std::{
    cell::Cell,
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use http::{HeaderMap, Request, Response, StatusCode};
use tollgate::{
    EventLog, Head, Limiter, Plan, Plans, Quota, RateLimitLayer, Tenant,
    clock::{Clock, Moment, UnixTime},
    event::Event,
    limit::HeaderStyle,
    reject::Rejection,
    tenant::TenantError,
    testing::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::engine::tenant;

/// Calls everything that a limiter has, and counts where it was called from.
#[derive(Clone, Debug, Default)]
struct Caller(Arc<(OnceLock<Limiter>, [AtomicUsize; PLACES.len()])>);

const PLACES: [&str; 9] =
    ["clock", "plan function", "source", "cost", "rule", "responder", "service", "sink", "metrics and tracing"];

impl Caller {
    fn call_from(&self, place: &str) {
        thread_local!(static IS_INSIDE: Cell<bool> = const { Cell::new(false) });
        let Some(limiter) = self.0.0.get().filter(|_| !IS_INSIDE.replace(true)) else { return };
        self.0.1[PLACES.iter().position(|own| *own == place).unwrap()].fetch_add(1, SeqCst);
        for name in ["acme", "globex", "late"] {
            let name = tenant(name);
            limiter.peek(&name);
            limiter.refund(limiter.check(&name, 1).into_spend());
            _ = limiter.check_anonymous(&name, 99);
        }
        limiter.reset(&tenant("initech"));
        limiter.plans().set(tenant("initech"), Quota::per_hour(7).unwrap());
        limiter.plans().remove(&tenant("initech"));
        limiter.plans().set_default(Quota::per_hour(3).unwrap());
        _ = (limiter.tenants(), limiter.bytes(), format!("{limiter:?}"), limiter.plans().plan(&tenant("acme")));
        IS_INSIDE.set(false);
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        PLACES.into_iter().zip(self.0.1.iter().map(|count| count.load(SeqCst))).collect()
    }
}

#[derive(Debug)]
struct CallingClock(ManualClock, Caller);

impl Clock for CallingClock {
    fn now(&self) -> Moment {
        self.1.call_from("clock");
        self.0.now()
    }

    fn unix(&self, moment: Moment) -> UnixTime {
        self.1.call_from("clock");
        self.0.unix(moment)
    }
}

/// Serves requests that are admitted, refused, refunded, and that share a bucket.
async fn serve(caller: Caller, limiter: Limiter, clock: ManualClock) {
    let from = |place: &'static str| {
        let caller = caller.clone();
        move || caller.call_from(place)
    };
    let (source, cost, rule, respond, served) =
        (from("source"), from("cost"), from("rule"), from("responder"), from("service"));
    let by_header = move |head: Head<'_>| -> Result<Option<Tenant>, TenantError> {
        source();
        head.headers().get("x-tenant").map(Tenant::parse).transpose()
    };
    let layer = RateLimitLayer::new(by_header, limiter)
        .headers(HeaderStyle::new().ietf_draft_10())
        .cost(move |_| {
            cost();
            1
        })
        .charge_if(move |_: StatusCode, headers: &HeaderMap| {
            rule();
            !headers.contains_key("x-free")
        })
        .respond_with(move |_: &Rejection, _: Head<'_>| {
            respond();
            Response::new(String::from("refused"))
        });
    for round in 0..400 {
        let name = ["acme", "globex", "late", "later"][round % 4];
        let request = Request::get("/").header("x-tenant", name).body(()).unwrap();
        let served = served.clone();
        let service = service_fn(move |_: Request<()>| {
            served();
            let response = Response::builder().header(if round % 3 == 0 { "x-free" } else { "x-paid" }, "1");
            std::future::ready(Ok::<_, Infallible>(response.body(String::new()).unwrap()))
        });
        layer.layer(service).oneshot(request).await.unwrap();
        // rows are swept, and buckets as well
        clock.advance(Duration::from_secs(61));
    }
}

fn run(caller: &Caller) {
    let clock = ManualClock::new();
    let (for_sink, for_plans) = (caller.clone(), caller.clone());
    // what it does is recorded, too, so it must end some time
    let mut writes = 0..3;
    let sink = move |_: &[Event]| _ = writes.next().map(|_| for_sink.call_from("sink"));
    let log = EventLog::builder().sink(sink).build();
    let gold = Plan::from(Quota::per_hour(2).unwrap());
    let quotas = Plans::by(Quota::per_hour(3).unwrap(), move |name: &tollgate::LimitKey| {
        for_plans.call_from("plan function");
        (name.as_str() == "globex").then(|| gold.clone())
    });
    let builder = Limiter::builder(quotas).events(log.clone()).max_tenants(2);
    let limiter = builder.clock(CallingClock(clock.clone(), caller.clone())).build().unwrap();
    caller.0.0.set(limiter.clone()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let serving = serve(caller.clone(), limiter, clock);
    observe::with(caller, || runtime.block_on(serving));
    assert!(log.flush());
}

#[test]
fn user_code_may_call_the_limiter_from_everywhere() {
    let (caller, (done, ended)) = (Caller::default(), mpsc::channel());
    let own = caller.clone();
    let thread = thread::spawn(move || {
        run(&own);
        _ = done.send(());
    });
    let has_ended = ended.recv_timeout(Duration::from_secs(60));
    assert_ne!(has_ended, Err(mpsc::RecvTimeoutError::Timeout), "it waits for a lock: {:?}", caller.counts());
    thread.join().unwrap();
    let observed = usize::from(cfg!(any(feature = "metrics", feature = "tracing")));
    let expected = PLACES.len() - 1 + observed;
    assert_eq!(caller.counts().iter().filter(|(_, count)| *count > 0).count(), expected, "{:?}", caller.counts());
}

/// Recorders of metrics and subscribers of traces are user code, too.
mod observe {
    use super::Caller;

    pub(super) fn with(caller: &Caller, work: impl FnOnce()) {
        #[cfg(feature = "metrics")]
        let work = || metrics::with_local_recorder(&recorder::Recorder(caller.clone()), work);
        #[cfg(feature = "tracing")]
        let work = || tracing::subscriber::with_default(subscriber::Subscriber(caller.clone()), work);
        let _ = caller;
        work();
    }

    #[cfg(feature = "metrics")]
    mod recorder {
        use std::sync::Arc;

        use super::Caller;

        pub(super) struct Recorder(pub(super) Caller);

        struct Counter(Caller);

        impl metrics::CounterFn for Counter {
            fn increment(&self, _: u64) {
                self.0.call_from("metrics and tracing");
            }

            fn absolute(&self, _: u64) {}
        }

        impl metrics::Recorder for Recorder {
            fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
            fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
            fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

            fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
                metrics::Counter::from_arc(Arc::new(Counter(self.0.clone())))
            }

            fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
                metrics::Gauge::noop()
            }

            fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
                metrics::Histogram::noop()
            }
        }
    }

    #[cfg(feature = "tracing")]
    mod subscriber {
        use tracing::{Event, Metadata, span};

        use super::Caller;

        pub(super) struct Subscriber(pub(super) Caller);

        impl tracing::Subscriber for Subscriber {
            fn enabled(&self, _: &Metadata<'_>) -> bool {
                true
            }

            fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
                span::Id::from_u64(1)
            }

            fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

            fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

            fn event(&self, _: &Event<'_>) {
                self.0.call_from("metrics and tracing");
            }

            fn enter(&self, _: &span::Id) {}

            fn exit(&self, _: &span::Id) {}
        }
    }
}
