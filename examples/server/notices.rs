//! Prints what an operator must know while the server runs.

use tollgate::{
    clock::UnixTime,
    event::{Event, EventKind},
};

/// The maximum number of lines in a minute, because a connection may come and go.
const MOST_PER_MINUTE: u32 = 10;

/// Prints a line when the limiter falls back, and one when Redis answers again.
pub(crate) fn sink() -> impl FnMut(&[Event]) + Send {
    let (mut minute, mut printed) = (0, 0);
    move |events| {
        for event in events {
            let Some(line) = line(event) else { continue };
            let this = event.at.as_secs() / 60;
            if minute != this {
                (minute, printed) = (this, 0);
            }
            printed += 1;
            if printed <= MOST_PER_MINUTE {
                eprintln!("{} {line}", date(event.at));
            } else if printed == MOST_PER_MINUTE + 1 {
                eprintln!(
                    "{} More such changes in this minute are not printed; the event log has them.",
                    date(event.at)
                );
            }
        }
    }
}

fn line(event: &Event) -> Option<String> {
    match event.kind {
        EventKind::LimiterFallbackBegan => Some(format!(
            "Redis does not answer the limiter ({}). Until it does, this server counts on its own.",
            event.reason.unwrap_or("error")
        )),
        EventKind::LimiterFallbackEnded => Some("Redis answers the limiter again. Budgets are shared.".to_owned()),
        _ => None,
    }
}

/// Formats the time of day, in UTC.
fn date(at: UnixTime) -> String {
    let second = at.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}
