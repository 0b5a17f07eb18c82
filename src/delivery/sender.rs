use std::{any::type_name, fmt, future::Future, sync::Arc};

use super::{error::SendError, message::Message};
use crate::store::BoxFuture;

/// Sends one-time codes, for example through a mail server or an SMS gateway.
///
/// Implement the method as `async fn`. It makes one attempt and returns the result; the
/// [`Queue`](super::Queue) retries. It should have its own timeout, and is called concurrently.
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
}

impl<S: OtpSender> OtpSender for Arc<S> {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        (**self).send(message).await
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
pub struct AnySender(Arc<dyn DynSender>);

impl AnySender {
    /// Calls [`OtpSender::send`].
    pub async fn send(&self, message: &Message) -> Result<(), SendError> {
        self.0.send(message).await
    }
}

impl<S: OtpSender> From<S> for AnySender {
    fn from(sender: S) -> Self {
        Self(Arc::new(sender))
    }
}

impl fmt::Debug for AnySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnySender").field(&self.0.name()).finish()
    }
}

/// The dyn-compatible form of [`OtpSender`].
trait DynSender: Send + Sync {
    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), SendError>>;
    fn name(&self) -> &'static str;
}

impl<S: OtpSender> DynSender for S {
    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), SendError>> {
        Box::pin(OtpSender::send(self, message))
    }

    fn name(&self) -> &'static str {
        type_name::<S>()
    }
}
