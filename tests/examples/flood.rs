//! The real server in a flood of refused requests: its memory stays bounded, and the event page stays responsive.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    FREE_PORT,
    support::{chromium::Chromium, example::Example},
};

const REFUSALS: usize = 100_000;
/// How many requests are sent at once on each connection.
const BATCH: usize = 250;
const CONNECTIONS: usize = 4;
/// The most memory that a flood of this size may add to the server: less than 100 bytes for each refusal.
const MOST_GROWTH: u64 = 8 << 20;

/// Returns the memory of a process that is in use, in bytes.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Sends requests of both tenants on one connection, and returns how many were refused.
async fn flood(server: &Example, batches: usize) -> usize {
    let request = |key| format!("GET /api/hello HTTP/1.1\r\nhost: localhost\r\nx-api-key: demo-{key}-key\r\n\r\n");
    let requests = [request("acme"), request("globex")].concat().repeat(BATCH / 2);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let mut refused = 0;
    for _ in 0..batches {
        stream.write_all(requests.as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        // no body contains an empty line
        while count(&answers, b"\r\n\r\n") < BATCH {
            assert!(stream.read_buf(&mut answers).await.unwrap() > 0, "the server closed the connection");
        }
        refused += count(&answers, b"HTTP/1.1 429");
    }
    refused
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|found| *found == part).count()
}

/// Notes the longest time in which the page did nothing.
const WATCH: &str = "(() => {
    globalThis.longest = 0;
    let last = performance.now();
    setInterval(() => {
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
    }, 20);
})()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_100_000_refusals_fills_no_memory_and_the_event_page_goes_on() {
    let Some(mut tab) = Chromium::start("events-flood").await else { return };
    let server = Example::start("server", &FREE_PORT).await;
    let process = server.child.id().unwrap();
    tab.open(&format!("{}/events/", server.origin)).await;
    tab.until(
        "document.getElementById('form').hidden && document.getElementById('state').textContent === 'Connected.'",
    )
    .await;
    // buffers, and what is made once
    let one = || flood(&server, 8);
    tokio::join!(one(), one(), one(), one());
    tab.ask(WATCH).await.unwrap();
    let before = resident(process);
    let batches = REFUSALS / CONNECTIONS / BATCH + 2;
    let all = async {
        let one = || flood(&server, batches);
        let (a, b, c, d) = tokio::join!(one(), one(), one(), one());
        a + b + c + d
    };
    let page = async {
        // an operator uses the page meanwhile
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            tab.click("#pause").await;
        }
        tab.until("document.querySelectorAll('#tenants .limited').length === 2").await;
    };
    let both = async { tokio::join!(all, page) };
    let (refused, ()) = timeout(Duration::from_secs(300), both).await.expect("the flood takes too long");
    assert!(refused >= REFUSALS, "{refused}");

    let growth = resident(process).saturating_sub(before);
    let seen = tab
        .ask("({ longest, rows: document.querySelectorAll('#rows tr').length, heap: performance.memory?.usedJSHeapSize ?? 0 })")
        .await
        .unwrap();
    let (longest, rows) = (seen["longest"].as_f64().unwrap(), seen["rows"].as_u64().unwrap());
    assert!(growth < MOST_GROWTH, "{growth} bytes more");
    assert!(longest < 10_000.0 && rows <= 1000 && seen["heap"].as_u64().unwrap() < 64 << 20, "{seen}");
    assert_eq!(tab.complaints(), [""; 0]);
}
