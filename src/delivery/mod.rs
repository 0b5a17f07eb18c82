//! One-time codes on their way: an [`OtpSender`] hands a [`Message`] on, and a
//! [`Queue`] sees to it that nobody who asks for a code waits for that.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Clock, SystemClock, delivery::{Channel, Message, Outbox, Queue}};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let outbox = Outbox::new();
//! let queue = Queue::builder()
//!     .lane(Channel::Email, outbox.clone())
//!     .on_undelivered(|message, why| eprintln!("{}: {}", message.tenant(), why.as_str()))
//!     .build();
//!
//! let clock = SystemClock::new();
//! let valid_until = clock.unix(clock.now()) + Duration::from_secs(300);
//! let message = Message::new(Channel::Email, "acme".parse()?, "ada@example.com", "482913", valid_until);
//! assert!(queue.push(Channel::Email, Some(message)));
//!
//! // it is sent by a task of its own
//! while outbox.messages().is_empty() {
//!     tokio::task::yield_now().await;
//! }
//! assert_eq!(outbox.messages()[0].code(), "482913");
//! # Ok::<_, tollgate::TenantError>(()) }).unwrap();
//! ```
//!
//! # Which sender
//!
//! | | |
//! |---|---|
//! | `Smtp` (feature `smtp`) | e-mail, through a mail server |
//! | `Webhook` (feature `webhook`) | anything, through an HTTP gateway of your own or one that you write a few lines for |
//! | [`Outbox`] | nothing is sent: for tests and demonstrations, never in production |
//! | your own [`OtpSender`] | an `async fn` |
//!
//! # What is promised
//!
//! A message is tried until a sender says that it was sent, and never after
//! that. An attempt that was cut off may have been sent nevertheless; its
//! [`id`](Message::id) is the same at the next, so that a receiver can tell.
//! Nothing is sent once its code has ended. What waits is in memory only: a
//! user whose code was lost in a crash asks for another.

mod channel;
mod error;
mod message;
mod outbox;
mod queue;
mod sender;
#[cfg(feature = "smtp")]
mod smtp;
#[cfg(feature = "webhook")]
mod webhook;
mod wording;

#[cfg(feature = "smtp")]
pub use self::smtp::Smtp;
#[cfg(feature = "webhook")]
pub use self::webhook::Webhook;
pub use self::{
    channel::Channel,
    error::{SendError, SendErrorKind},
    message::Message,
    outbox::Outbox,
    queue::{LaneStats, Queue, QueueBuilder, Undelivered},
    sender::{AnySender, OtpSender},
    wording::Wording,
};
