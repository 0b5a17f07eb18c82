//! A service that stops in the middle of a login, and another one that continues from the same file.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use tollgate::{store::Disk, testing::ManualClock};

use crate::world::{ADA, ADA_PASSWORD, ADA_PHONE, Browser, World};

pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tollgate-login-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _removed = std::fs::remove_file(&self.0);
    }
}

/// The state that outlives a service: its file, the time, and the browser.
struct Life {
    file: File,
    clock: ManualClock,
    cookies: BTreeMap<String, String>,
}

impl Life {
    async fn begin(&self) -> (World, Browser) {
        let disk = loop {
            // the file is free once the last task of the stopped service has dropped it
            match Disk::open(&self.file.0) {
                Ok(disk) => break disk,
                Err(error) => {
                    assert!(error.is_transient(), "{error:?}");
                    tokio::task::yield_now().await;
                }
            }
        };
        let world = World::on(disk.into(), self.clock.clone(), |service| service).await;
        let mut browser = world.browser();
        browser.cookies.clone_from(&self.cookies);
        (world, browser)
    }

    async fn end(&mut self, world: World, browser: Browser) -> (World, Browser) {
        self.cookies.clone_from(&browser.cookies);
        drop((world, browser));
        self.begin().await
    }
}

#[tokio::test]
async fn a_login_continues_after_restarts_and_yields_one_code() {
    // one bit for each possible restart
    for ends in 0..32_u32 {
        // none, each one alone, and all
        if ends.count_ones() > 1 && ends != 31 {
            continue;
        }
        let mut life = Life { file: File::new(), clock: ManualClock::new(), cookies: BTreeMap::new() };
        let (mut world, mut browser) = life.begin().await;

        let id = browser.start("mfa", ADA).await;
        if ends & 1 != 0 {
            (world, browser) = life.end(world, browser).await;
        }
        assert_eq!(browser.ask("mfa", &id, "sms", ADA_PHONE).await.status, 200);
        let code = world.code(ADA_PHONE).await;
        if ends & 2 != 0 {
            (world, browser) = life.end(world, browser).await;
        }
        assert_eq!(browser.verify("mfa", &id, &code).await.json()["completed_steps"], 1);
        if ends & 4 != 0 {
            (world, browser) = life.end(world, browser).await;
            assert_eq!(browser.status(&id).await.json()["completed_steps"], 1);
            assert_eq!(browser.verify("mfa", &id, &code).await.error(), "no_pending_challenge");
        }
        let step = browser.password("mfa", &id, "ada", ADA_PASSWORD).await;
        assert_eq!(step.json()["remaining_steps"], 0, "{step:?}");
        assert_eq!(browser.complete("mfa", &id).await.status, 200);
        if ends & 8 != 0 {
            (world, browser) = life.end(world, browser).await;
        }
        let spent = browser.cookies.clone();
        assert!(browser.authorize("mfa").await.redirected("code").is_some(), "{ends:05b}");
        if ends & 16 != 0 {
            (world, browser) = life.end(world, browser).await;
        }
        // a used login stays used
        browser.cookies = spent;
        assert_eq!(browser.authorize("mfa").await.redirected("code"), None);
        assert_eq!(browser.status(&id).await.json()["status"], "expired");
        drop(world);
    }
}

#[tokio::test]
async fn c058_c110_counters_survive_a_restart() {
    let mut life = Life { file: File::new(), clock: ManualClock::new(), cookies: BTreeMap::new() };
    let (mut world, mut browser) = life.begin().await;
    let id = browser.start("web", ADA).await;
    browser.ask("web", &id, "sms", ADA_PHONE).await;
    for _ in 0..5 {
        assert_eq!(browser.password("web", &id, "ada", "wrong").await.error(), "invalid_credentials");
        (world, browser) = life.end(world, browser).await;
    }
    let locked = browser.password("web", &id, "ada", ADA_PASSWORD).await;
    assert_eq!((locked.error().as_str(), locked.header("retry-after")), ("too_many_attempts", "30"));
    assert_eq!(browser.ask("web", &id, "sms", ADA_PHONE).await.error(), "slow_down");
    drop(world);
}

const FILE: &str = "TOLLGATE_LOGIN_FILE";
const STEPS: &str = "TOLLGATE_LOGIN_STEPS";

/// Logs in up to this step, prints its progress, and waits to be killed.
#[tokio::test]
#[ignore = "the next test runs it as a child process"]
async fn child() {
    let (Ok(path), Ok(steps)) = (std::env::var(FILE), std::env::var(STEPS)) else { return };
    let steps: u32 = steps.parse().unwrap();
    let world = World::on(Disk::open(path).unwrap().into(), ManualClock::new(), |service| service).await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    if steps >= 1 {
        assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
    }
    if steps >= 2 {
        assert_eq!(browser.complete("web", &id).await.status, 200);
    }
    let cookies = browser.cookies.clone();
    if steps >= 3 {
        assert!(browser.authorize("web").await.redirected("code").is_some());
    }
    writeln!(std::io::stdout(), "\nREADY {}", serde_json::json!([id, cookies])).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_login_continues_after_kill_9_and_a_used_login_stays_used() {
    for steps in 0..4 {
        let file = File::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["restart::child", "--exact", "--ignored", "--nocapture"])
            .envs([(FILE, file.0.to_str().unwrap()), (STEPS, &steps.to_string())])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.find_map(|line| line.strip_prefix("READY ").map(str::to_owned));
        child.kill().unwrap();
        child.wait().unwrap();
        let (id, cookies): (String, BTreeMap<String, String>) = serde_json::from_str(&said.unwrap()).unwrap();

        let life = Life { file, clock: ManualClock::new(), cookies };
        let (_world, mut browser) = life.begin().await;
        let done = browser.status(&id).await.json();
        assert_eq!(done["status"], ["pending", "success", "completed", "expired"][steps]);
        if steps == 0 {
            assert_eq!(browser.password("web", &id, "ada", ADA_PASSWORD).await.status, 200);
        }
        browser.complete("web", &id).await;
        assert_eq!(browser.authorize("web").await.redirected("code").is_some(), steps < 3);
    }
}
