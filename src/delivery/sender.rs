use std::{any::type_name, fmt, future::Future, sync::Arc};

use super::{error::SendError, message::Message};
use crate::store::BoxFuture;

/// Hands one-time codes on: to a mail server, a gateway for text messages, or
/// whatever reaches the user.
///
/// An implementation writes an `async fn`. It makes one attempt and says what
/// came of it; a [`Queue`](super::Queue) makes the others. It answers within a
/// time of its own, and it is called for several messages at once.
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
    message = "`{Self}` can't send one-time codes",
    note = "implement `OtpSender` for it, or take `Smtp`, `Webhook` or `Outbox`"
)]
pub trait OtpSender: Send + Sync + 'static {
    /// Makes one attempt to send this message.
    ///
    /// After `Ok` it is never called for this message again. An attempt that is
    /// cut off, or whose answer was lost, may have sent it: a receiver knows a
    /// second one by its [`id`](Message::id).
    fn send(&self, message: &Message) -> impl Future<Output = Result<(), SendError>> + Send;
}

impl<S: OtpSender> OtpSender for Arc<S> {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        (**self).send(message).await
    }
}

/// Any [`OtpSender`], its type forgotten; clones are the same sender.
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
    /// See [`OtpSender::send`].
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

/// [`OtpSender`] as an object.
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
