use std::{any::type_name, future::Future, sync::Arc};

use super::{error::SendError, message::Message};
use crate::store::BoxFuture;

/// Sends messages, for example through a mail server or an SMS gateway: one-time codes, notices of changed sign-in methods,
/// and links.
///
/// Implement [`send`](Self::send) as `async fn`. It makes one attempt and returns the result; the
/// login service retries. It is called concurrently. An attempt is cut off after 30 seconds, so set a shorter timeout.
///
/// ```
/// use tollgate::{clock::{Clock, SystemClock}, delivery::{Message, OtpSender, SendError}};
///
/// struct Console;
///
/// impl OtpSender for Console {
///     async fn send(&self, message: &Message) -> Result<(), SendError> {
///         let (_, now) = SystemClock::new().read();
///         println!("{}: {}", message.to(), message.text(now));
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `OtpSender`",
    note = "implement `OtpSender` for it, or use `Smtp`, `Webhook` or `Outbox`"
)]
pub trait OtpSender: Send + Sync + 'static {
    /// Makes one attempt to send this message. [`Message::text`] has the words for each kind of message.
    /// [`Message::code`], [`Message::notice`] and [`Message::link`] are for senders with words of their own. One that can only send
    /// codes returns [`SendError::permanent`] for the others, so that an event shows what is lost.
    ///
    /// It is not called again for the same message after it has returned `Ok`. An attempt that was
    /// cut off may have been delivered; receivers can detect duplicates by the [`id`](Message::id).
    fn send(&self, message: &Message) -> impl Future<Output = Result<(), SendError>> + Send;
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
    /// Calls [`OtpSender::send`].
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
            Box::pin(async move { sender.send(message).await })
        });
        Self { send, name: type_name::<S>() }
    }
}

crate::util::fmt::debug_text!(AnySender, |own| own.name);
