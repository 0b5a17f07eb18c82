//! Delivery of one-time codes, links, and notices about changed sign-in methods. An [`OtpSender`] sends a [`Message`],
//! and a [`Queue`] does this in the background, so that no request waits for it.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{clock::{Clock, SystemClock}, delivery::{Channel, Message, Outbox, Queue}};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let outbox = Outbox::new();
//! let queue = Queue::builder()
//!     .channel(Channel::Email, outbox.clone())
//!     .on_undelivered(|message, why| eprintln!("{}: {}", message.tenant(), why.as_str()))
//!     .build();
//!
//! let clock = SystemClock::new();
//! let valid_until = clock.unix(clock.now()) + Duration::from_secs(300);
//! let message = Message::new(Channel::Email, "acme".parse()?, "ada@example.com", "482913", valid_until);
//! assert!(queue.push(Channel::Email, message));
//!
//! // a background task sends it
//! while outbox.messages().is_empty() {
//!     tokio::task::yield_now().await;
//! }
//! assert_eq!(outbox.messages()[0].code(), "482913");
//! # Ok::<_, tollgate::tenant::TenantError>(()) }).unwrap();
//! ```
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
    queue::{ChannelStats, Queue, QueueBuilder, Undelivered},
    sender::{AnySender, OtpSender},
};
