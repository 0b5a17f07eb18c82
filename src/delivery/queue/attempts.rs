use std::time::Duration;

use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{Undelivered, settings::Settings};
use crate::{
    delivery::{error::SendError, link::Link, message::Message, sender::AnySender},
    util::{error::with_sources, trace::warning},
};

const ATTEMPTS: u32 = 4;
/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The maximum wait, even if the service asks for a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Retries until the message is sent or further attempts are pointless.
pub(super) async fn deliver(
    sender: &AnySender,
    message: &Message,
    settings: &Settings,
    alive: &mut watch::Receiver<()>,
) -> Result<(), Undelivered> {
    for attempt in 1_u32.. {
        if alive.has_changed().is_err() {
            return Err(Undelivered::Stopped);
        }
        let left = remaining_validity(message, settings).ok_or(Undelivered::Expired)?;
        let Err(error) = once(sender, message, left.min(TIMEOUT)).await else { return Ok(()) };
        let wait = wait_before_retry(attempt, error.retry_after(), jitter());
        let given_up = if !error.is_transient() {
            Some(Undelivered::Refused)
        } else if attempt >= ATTEMPTS {
            Some(Undelivered::Exhausted)
        } else {
            remaining_validity(message, settings).is_none_or(|left| left <= wait).then_some(Undelivered::Expired)
        };
        if let Some(why) = given_up {
            warning!("the sender of {} failed: {}", message.channel().as_str(), without_secrets(&error, message));
            return Err(why);
        }
        // the channel never carries a value: this returns only if the queue is dropped
        if timeout(wait, alive.changed()).await.is_ok() {
            return Err(Undelivered::Stopped);
        }
    }
    Err(Undelivered::Exhausted)
}

async fn once(sender: &AnySender, message: &Message, limit: Duration) -> Result<(), SendError> {
    let (sender, message) = (sender.clone(), message.clone());
    // in a task of its own, a panic ends only this attempt
    let mut attempt = JoinSet::new();
    attempt.spawn(async move { sender.send(&message).await });
    match timeout(limit, attempt.join_next()).await {
        Ok(Some(Ok(outcome))) => outcome,
        Ok(Some(Err(error))) if error.is_panic() => Err(SendError::permanent("the sender panicked")),
        // its runtime ends
        Ok(_) => Err(SendError::transient("the attempt was cut off")),
        Err(_elapsed) => Err(SendError::transient("the sender timed out")),
    }
}

/// Returns an error with its sources for the log, without the address, the code and the link of its message, which senders
/// often repeat.
fn without_secrets(error: &SendError, message: &Message) -> String {
    let code = message.notice().is_none().then(|| message.code());
    let (address, digits) = (message.to(), message.to().trim_start_matches('+'));
    // a sender may have encoded the rest of the URL
    let url = message.link().map(Link::url);
    let fragment = url.and_then(|url| url.split_once('#')).map(|(_, fragment)| fragment);
    let secret = fragment.and_then(|fragment| fragment.split_once('=')).map(|(_, secret)| secret);
    let secrets = [url, fragment, secret, Some(address), Some(digits), code].into_iter().flatten();
    let secrets = secrets.filter(|secret| !secret.is_empty());
    secrets.fold(with_sources(error), |line, secret| replace_text(&line, secret))
}

/// Replaces a text, in upper or lower case, with dots.
fn replace_text(line: &str, secret: &str) -> String {
    let (lower, secret) = (line.to_ascii_lowercase(), secret.to_ascii_lowercase());
    let mut rest = 0;
    let mut replaced = String::with_capacity(line.len());
    for (at, _) in lower.match_indices(&secret) {
        replaced.push_str(line.get(rest..at).unwrap_or_default());
        replaced.push('…');
        rest = at + secret.len();
    }
    replaced.push_str(line.get(rest..).unwrap_or_default());
    replaced
}

/// Returns how long the code is still valid.
pub(super) fn remaining_validity(message: &Message, settings: &Settings) -> Option<Duration> {
    let left = message.expires_at().as_nanos().saturating_sub(settings.now().as_nanos());
    (left > 0).then(|| Duration::from_nanos(left))
}

/// Returns the wait after this many attempts: half a second, doubled with each attempt, plus up to
/// half as much again at random, so that messages that failed together are not retried together.
fn wait_before_retry(attempts: u32, asked: Option<Duration>, jitter: u32) -> Duration {
    let base = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(LONGEST_WAIT);
    let share = f64::from(jitter) / f64::from(u32::MAX);
    let wait = base + base.mul_f64(share / 2.0);
    wait.max(asked.unwrap_or_default().min(LONGEST_WAIT))
}

pub(super) fn jitter() -> u32 {
    getrandom::u32().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_with_jitter_and_respect_the_service_within_limits() {
        let ms = Duration::from_millis;
        for (attempts, least) in [(1, ms(500)), (2, ms(1000)), (3, ms(2000)), (4, ms(4000)), (40, LONGEST_WAIT)] {
            assert_eq!(wait_before_retry(attempts, None, 0), least);
            assert_eq!(wait_before_retry(attempts, None, u32::MAX), least * 3 / 2);
        }
        assert_eq!(wait_before_retry(1, Some(ms(7_000)), 0), ms(7_000));
        assert_eq!(wait_before_retry(3, Some(ms(100)), 0), ms(2_000));
        assert_eq!(wait_before_retry(1, Some(Duration::MAX), 0), LONGEST_WAIT);
    }
}
