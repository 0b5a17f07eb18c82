use std::{any::type_name, future::Future, sync::Arc};

use super::{
    error::{SendError, SendErrorKind},
    message::Message,
};
use crate::store::BoxFuture;

/// Sends one-time codes, for example through a mail server or an SMS gateway.
///
/// Implement [`send`](Self::send) as `async fn`. It makes one attempt and returns the result; the
/// login service retries. It is called concurrently. An attempt is cut off after 30 seconds, so set a shorter timeout.
///
/// ```
/// use tollgate::delivery::{Message, OtpSender, SendError};
///
/// struct Console;
///
/// impl OtpSender for Console {
///     async fn send(&self, message: &Message) -> Result<(), SendError> {
///         println!("{}: your code is {}", message.to(), message.code());
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `OtpSender`",
    note = "implement `OtpSender` for it, or use `Smtp`, `Webhook` or `Outbox`"
)]
pub trait OtpSender: Send + Sync + 'static {
    /// Makes one attempt to send this message.
    ///
    /// It is not called again for the same message after it has returned `Ok`. An attempt that was
    /// cut off may have been delivered; receivers can detect duplicates by the [`id`](Message::id).
    fn send(&self, message: &Message) -> impl Future<Output = Result<(), SendError>> + Send;

    /// Makes one attempt to send a message without a code: [`Message::notice`] has what changed in how the user signs
    /// in, and [`Message::text`] the words for it.
    ///
    /// By default the message is refused, and counts as undelivered.
    fn send_notice(&self, message: &Message) -> impl Future<Output = Result<(), SendError>> + Send {
        let _ = message;
        async { Err(SendErrorKind::Permanent.into()) }
    }

    /// Makes one attempt to send a message with a link: [`Message::link`] has its URL, and [`Message::text`] the words
    /// for it.
    ///
    /// By default the message is refused, and counts as undelivered. Invitations and resets by the application then fail, and
    /// the owner of an address does not learn that somebody tried to sign up with it.
    fn send_link(&self, message: &Message) -> impl Future<Output = Result<(), SendError>> + Send {
        let _ = message;
        async { Err(SendErrorKind::Permanent.into()) }
    }
}

/// A type-erased [`OtpSender`]. Clones share the same sender.
///
/// ```
/// use tollgate::delivery::{AnySender, Outbox};
///
/// let sender = AnySender::from(Outbox::new());
/// # let _ = sender;
/// ```
#[derive(Clone)]
pub struct AnySender {
    send: Arc<SendMessage>,
    name: &'static str,
}

type SendMessage = dyn for<'a> Fn(&'a Message) -> BoxFuture<'a, Result<(), SendError>> + Send + Sync;

impl AnySender {
    /// Calls [`OtpSender::send`] for a code, [`OtpSender::send_notice`] for a notice, or [`OtpSender::send_link`] for a
    /// link.
    pub async fn send(&self, message: &Message) -> Result<(), SendError> {
        (self.send)(message).await
    }
}

impl<S: OtpSender> From<S> for AnySender {
    fn from(sender: S) -> Self {
        Self::from(Arc::new(sender))
    }
}

impl<S: OtpSender> From<Arc<S>> for AnySender {
    fn from(sender: Arc<S>) -> Self {
        let send: Arc<SendMessage> = Arc::new(move |message| {
            let sender = Arc::clone(&sender);
            Box::pin(async move {
                match (message.notice(), message.link()) {
                    (None, None) => sender.send(message).await,
                    (Some(_), _) => sender.send_notice(message).await,
                    (None, Some(_)) => sender.send_link(message).await,
                }
            })
        });
        Self { send, name: type_name::<S>() }
    }
}

crate::util::fmt::debug_text!(AnySender, |own| own.name);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::{
            channel::Channel,
            notice::{Notice, NoticeKind},
            outbox::Outbox,
        },
        util::clock::UnixTime,
    };

    struct OnlyCodes;

    impl OtpSender for OnlyCodes {
        async fn send(&self, _: &Message) -> Result<(), SendError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn notices_reach_senders_that_support_them_and_no_others() {
        let (tenant, until) = ("acme".parse::<crate::Tenant>().unwrap(), UnixTime::from_secs(1));
        let code = Message::new(Channel::Sms, tenant.clone(), "+15550100", "482913", until);
        let notice = Notice::new(NoticeKind::PasskeyAdded, UnixTime::default());
        let notice = Message::of_notice(Channel::Sms, tenant, "+15550100", notice, until);
        let only_codes = AnySender::from(Arc::new(OnlyCodes));
        assert!(only_codes.send(&code).await.is_ok());
        assert_eq!(only_codes.send(&notice).await.unwrap_err().kind(), SendErrorKind::Permanent);
        let outbox = Outbox::new();
        AnySender::from(Arc::new(outbox.clone())).send(&notice).await.unwrap();
        assert_eq!(outbox.messages()[0].notice().unwrap().kind(), NoticeKind::PasskeyAdded);
    }
}
