//! Delivery of one-time codes, links, and notices about changed sign-in methods. An [`OtpSender`] sends a [`Message`]. The
//! login service calls it in the background, so that no request waits for it.
//!
//! # Senders
//!
//! | | |
//! |---|---|
//! | `Smtp` (feature `smtp`) | e-mail through a mail server |
//! | `Webhook` (feature `webhook`) | any channel, through your own HTTP gateway or a small adapter |
//! | [`Outbox`] | sends nothing; for tests and demos, never for production |
//! | your own [`OtpSender`] | implement one `async fn` |
//!
//! # Guarantees
//!
//! A message is retried until its sender reports success, a few times at most, and never after that. An attempt that
//! was cut off may have been delivered; its [`id`](Message::id) is the same for all attempts, so that receivers can
//! discard duplicates. Expired codes are not sent. Waiting messages are kept in memory only: after a crash, users have
//! to request a new code.

mod channel;
mod error;
mod link;
mod message;
mod notice;
mod outbox;
mod queue;
mod sender;
#[cfg(feature = "smtp")]
mod smtp;
#[cfg(feature = "webhook")]
mod webhook;
mod wording;

pub(crate) use self::queue::Queue;
#[cfg(feature = "smtp")]
pub use self::smtp::Smtp;
#[cfg(feature = "webhook")]
pub use self::webhook::Webhook;
pub use self::{
    channel::Channel,
    error::{SendError, SendErrorKind},
    link::{Link, LinkKind},
    message::Message,
    notice::{Notice, NoticeKind},
    outbox::Outbox,
    sender::{AnySender, OtpSender},
};
