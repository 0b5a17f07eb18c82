use super::{Tenant, TenantError, TenantSource};
use crate::http::head::Head;

/// Two sources in a row: the second is asked where the first finds no tenant.
///
/// An error of the first stands: a request with an unknown API key is refused,
/// it does not pass for one without a key. Made by [`TenantSource::or`].
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    next: B,
}

impl<A, B> Or<A, B> {
    pub(super) fn new(first: A, next: B) -> Self {
        Self { first, next }
    }
}

impl<A: TenantSource, B: TenantSource> TenantSource for Or<A, B> {
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        match self.first.find(head)? {
            Some(tenant) => Ok(Some(tenant)),
            None => self.next.find(head),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    type Found = Result<Option<Tenant>, TenantError>;

    fn answers(found: Found) -> impl TenantSource {
        move |_: Head<'_>| -> Found { found.clone() }
    }

    #[test]
    fn the_first_that_finds_a_tenant_or_fails_answers() {
        let acme: Found = Ok(Tenant::parse("acme").ok());
        let globex: Found = Ok(Tenant::parse("globex").ok());
        let none: Found = Ok(None);
        let error: Found = Err(TenantError::unknown("no such key"));
        for (first, second, third, answer) in [
            (&acme, &globex, &error, &acme),
            (&none, &globex, &acme, &globex),
            (&none, &none, &globex, &globex),
            (&none, &error, &acme, &error),
            (&error, &acme, &globex, &error),
            (&none, &none, &none, &none),
        ] {
            let chain = answers(first.clone()).or(answers(second.clone())).or(answers(third.clone()));
            assert_eq!(&chain.find(Head::of(&Request::new(()))), answer);
        }
    }
}
