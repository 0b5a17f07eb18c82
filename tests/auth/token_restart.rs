//! A service that is killed while it issues tokens, and another one that continues from the same file.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use tollgate::{store::Disk, testing::ManualClock};

use crate::{
    issued_tokens::{IssuedTokens, all_are, good_at},
    restart::File,
    special_worlds::put_keys,
    token_requests::Grant,
    world::World,
};

const FILE: &str = "TOLLGATE_TOKENS_FILE";

/// Prints what it has after each response, from its code to ever newer refresh tokens, until it is killed.
#[tokio::test]
#[ignore = "the next test runs it as a child process"]
async fn child() {
    let Ok(path) = std::env::var(FILE) else { return };
    let world = World::on(Disk::open(path).unwrap().into(), ManualClock::new(), |service| service).await;
    let mut browser = world.browser();
    let say = |what: &str, text: &str| writeln!(std::io::stdout(), "\n{what} {text}").unwrap();
    let code = browser.sign_in("web").await;
    say("CODE", &format!("{} {}", code.code, code.verifier));
    let mut issued = IssuedTokens::of(&browser.redeem("web", &code).await);
    loop {
        say("GIVEN", &serde_json::json!([issued.access, issued.refresh()]).to_string());
        issued = IssuedTokens::of(&browser.refresh("web", issued.refresh()).await);
    }
}

#[tokio::test]
async fn c092_c093_c095_after_a_kill_9_issued_tokens_work_and_used_ones_do_not() {
    let mut unanswered = 0;
    // a late kill lets the first call end, so the first round is repeated until one gets no response
    for (number, round) in (0..24_usize).chain([0; 100]).enumerate() {
        if number >= 24 && unanswered > 0 {
            break;
        }
        let file = File::new();
        {
            let disk = Disk::open(&file.0).unwrap();
            put_keys(&disk.into()).await;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["token_restart::child", "--exact", "--ignored", "--nocapture"])
            .env(FILE, &file.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.find_map(|line| line.strip_prefix("CODE ").map(str::to_owned));
        let said = said.unwrap();
        let (code, verifier) = said.split_once(' ').unwrap();
        let code = Grant { code: code.to_owned(), verifier: verifier.to_owned() };
        let issued = |line: String| {
            let json = line.strip_prefix("GIVEN ")?.to_owned();
            let (access, refresh): (String, String) = serde_json::from_str(&json).unwrap();
            Some(IssuedTokens { access, refresh: Some(refresh), id: None, scope: String::new() })
        };
        // waits for a number of responses, and kills it during the next call
        let mut all: Vec<IssuedTokens> = lines.by_ref().filter_map(issued).take(round % 4).collect();
        for _ in 0..round / 4 * 40 {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // the rest of its output
        all.extend(lines.filter_map(issued));

        let clock = ManualClock::new();
        let world = World::on(Disk::open(&file.0).unwrap().into(), clock, |service| service).await;
        let mut browser = world.browser();
        let again = browser.redeem("web", &code).await;
        let Some(last) = all.last() else {
            // the call got no response: either the token works, or it is used up for good
            unanswered += 1;
            assert!(again.status == 200 || again.error() == "invalid_grant", "{again:?}");
            if again.status == 200 {
                all_are(true, &world, "web", &IssuedTokens::of(&again)).await;
            }
            assert_eq!(browser.redeem("web", &code).await.error(), "invalid_grant");
            continue;
        };
        assert_eq!(again.error(), "invalid_grant");
        let before = all.iter().rev().nth(1);
        // it may have been used without a response
        let verifier = world.service.verifier();
        let good = good_at(&mut browser, &verifier, "web", last).await;
        assert!(good.len() >= 3, "{good:?}");
        let next = IssuedTokens::of(&browser.refresh("web", last.refresh()).await);
        all_are(true, &world, "web", &next).await;
        assert_eq!(IssuedTokens::of(&browser.refresh("web", last.refresh()).await).refresh(), next.refresh());
        // older tokens and the code are still detected as reused
        if round % 2 == 0 {
            world.advance(10);
        } else {
            world.advance(3);
        }
        let theft = match before {
            Some(before) if round % 2 == 0 => browser.refresh("web", before.refresh()).await,
            _ => browser.redeem("web", &code).await,
        };
        assert_eq!(theft.error(), "invalid_grant");
        for issued in all.iter().chain([&next]) {
            all_are(false, &world, "web", issued).await;
        }
    }
    assert!(unanswered > 0);
}
