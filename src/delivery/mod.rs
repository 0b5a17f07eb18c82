//! One-time codes on their way: `OtpSender`, a bounded queue, SMTP, HTTP webhooks, and an outbox.
