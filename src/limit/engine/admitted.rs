//! Counts of the admitted requests. They are kept under the locks that a decision takes anyway.

use crate::{
    limit::decision::{Ask, Decision},
    tenant::LimitKey,
};

/// The most tenants of a shard that are counted on their own.
const MOST_WATCHED: usize = 4;

/// The requests that the tenants of one shard were admitted with. Small, because it shares a cache line with the lock.
#[derive(Default)]
pub(super) struct Admitted {
    requests: u64,
    /// The tenant that was asked for last comes last.
    watched: Option<Box<[Watched]>>,
}

/// A tenant that is counted on its own, because somebody looks at it.
struct Watched {
    tenant: LimitKey,
    requests: u64,
}

impl Admitted {
    /// Counts a request, if it is admitted and spends something.
    #[inline]
    pub(super) fn count(&mut self, tenant: &[u8], ask: Ask, decision: &Decision) {
        if decision.is_admitted() && ask.units > 0 {
            self.requests += 1;
            if let Some(watched) = &mut self.watched {
                count_watched(watched, tenant);
            }
        }
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns how many requests of this tenant were admitted since the first call for it. If there is no room, the tenant
    /// whose last call is oldest is forgotten.
    pub(super) fn watch(&mut self, tenant: &LimitKey) -> u64 {
        let mut watched = self.watched.take().map(Vec::from).unwrap_or_default();
        let place = watched.iter().position(|one| one.tenant == *tenant);
        let requests = place.map_or(0, |place| watched.remove(place).requests);
        if watched.len() >= MOST_WATCHED {
            watched.remove(0);
        }
        watched.push(Watched { tenant: tenant.clone(), requests });
        self.watched = Some(watched.into());
        requests
    }
}

#[cold]
fn count_watched(watched: &mut [Watched], tenant: &[u8]) {
    if let Some(one) = watched.iter_mut().find(|one| one.tenant.as_bytes() == tenant) {
        one.requests += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(admitted: &mut Admitted, name: &str, units: u32) {
        admitted.count(name.as_bytes(), Ask::new(units, false), &Decision::UNLIMITED);
    }

    #[test]
    fn a_tenant_is_counted_on_its_own_from_the_first_look_on() {
        let (mut admitted, acme) = (Admitted::default(), LimitKey::parse("acme").unwrap());
        count(&mut admitted, "acme", 1);
        assert_eq!(admitted.watch(&acme), 0);
        for name in ["acme", "globex", "acme"] {
            count(&mut admitted, name, 3);
        }
        count(&mut admitted, "acme", 0);
        assert_eq!((admitted.watch(&acme), admitted.requests()), (2, 4));
        admitted.count(b"acme", Ask::new(1, false), &Decision::DENIED);
        assert_eq!((admitted.watch(&acme), admitted.requests()), (2, 4));
    }

    #[test]
    fn a_shard_watches_a_few_tenants_and_fits_in_a_cache_line() {
        let mut admitted = Admitted::default();
        for second in 0..100 {
            let tenant = LimitKey::parse(format!("tenant-{second}")).unwrap();
            admitted.watch(&tenant);
        }
        let kept: Vec<_> = admitted.watched.iter().flatten().map(|one| one.tenant.as_str().to_owned()).collect();
        assert_eq!(kept.len(), MOST_WATCHED);
        assert!(kept.iter().any(|name| name == "tenant-99"));
        assert_eq!(size_of::<super::super::Shard>(), 64);
    }
}
