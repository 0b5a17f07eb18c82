//! Reads how users sign in from the file of `--config`.

use std::path::Path;

use tollgate::Tenant;

#[cfg(not(feature = "external-providers"))]
use crate::help;
use crate::{
    auth::{self, LOCALHOST},
    login_limits::{Lifetimes, Limits},
    login_settings::{LoginSettings, WrittenPasskeys},
    problems::Problems,
    senders::{Senders, WrittenWebhook},
    written::Written,
};

impl Written {
    pub(crate) fn login(&mut self, directory: &Path, problems: &mut Problems<'_>) -> LoginSettings {
        let webhook = |written: &WrittenWebhook| written.sender(directory);
        let senders = Senders {
            email: self.smtp.as_ref().and_then(|smtp| problems.read("smtp: ", smtp, |smtp| smtp.sender(directory))),
            sms: self.sms.as_ref().and_then(|sms| problems.read("sms: ", sms, webhook)),
            whatsapp: self.whatsapp.as_ref().and_then(|sender| problems.read("whatsapp: ", sender, webhook)),
        };
        let pages = self.account_pages.as_ref();
        let apps = self.authenticator_apps.as_ref();
        let lifetimes = self.lifetimes.take().map(|written| {
            problems.read("lifetimes: ", &written, |own| {
                auth::check(LOCALHOST, |auth| Limits::default().set_on(own.set_on(auth), own, None))
            });
            written.into_inner()
        });
        let limits = self.limits.take().map(|written| {
            problems.read("limits: ", &written, |own| {
                auth::check(LOCALHOST, |auth| own.set_on(auth, &Lifetimes::default(), None))
            });
            written.into_inner()
        });
        let are_damaged = problems.is_damaged("providers");
        let providers = self.providers.iter().filter(|_| !are_damaged);
        #[cfg(feature = "external-providers")]
        let providers = providers.filter_map(|written| {
            let place = format!("providers: {:?}: ", written.get_ref().name);
            problems.read(&place, written, |written| written.read(directory))
        });
        #[cfg(not(feature = "external-providers"))]
        providers.for_each(|written| {
            problems.read("providers: ", written, |_| Err::<(), _>(help::without_feature("external-providers")));
        });
        LoginSettings {
            #[cfg(feature = "external-providers")]
            providers: providers.collect(),
            account_pages: pages
                .and_then(|tenant| problems.read("account_pages: ", tenant, |name| Tenant::parse(name))),
            passkeys: self.passkeys.take().map(WrittenPasskeys::read),
            apps: apps.and_then(|apps| problems.read("authenticator_apps: ", apps, |apps| apps.read(directory))),
            senders,
            lifetimes: lifetimes.unwrap_or_default(),
            limits: limits.unwrap_or_default(),
        }
    }
}
