//! The bundled server on a disk without room.

use std::{fs, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

use super::temporary;
use crate::support::{
    example::command,
    programs::{missing, program},
};

/// The disk is a small file system in memory, which only that process sees.
#[expect(clippy::print_stdout, reason = "says what was not tested")]
#[tokio::test]
async fn b40_a_start_without_room_says_that_the_disk_is_full() {
    let Some(unshare) = program(&["unshare"]) else { return missing("unshare") };
    let directory = temporary("full-disk");
    fs::create_dir_all(&directory).unwrap();
    let server = command("server", &[]).as_std().get_program().to_owned();
    let (mut failures, mut kibibytes) = (0, 8);
    loop {
        let script = format!(
            r#"mount -t tmpfs -o size={kibibytes}k tollgate "$0" || exit 77
            exec "$1" --listen 127.0.0.1:0 --data "$0/data""#
        );
        let mut child = Command::new(&unshare)
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .args([directory.as_os_str(), &server])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = timeout(Duration::from_secs(60), lines.next_line()).await.expect("it starts or ends").unwrap();
        if first.is_some_and(|line| line.starts_with("Listening")) {
            assert!(failures > 2, "{failures}");
            child.kill().await.unwrap();
            break;
        }
        let output = timeout(Duration::from_secs(60), child.wait_with_output()).await.expect("it ends").unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(77) || errors.contains("unshare") {
            // this needs a permission of the machine, not a program that can be installed
            println!("not tested: this machine does not allow a file system of its own");
            break;
        }
        for part in ["the store is full", "No space left on device", "Make room on the disk of --data"] {
            assert!(errors.contains(part), "{kibibytes} KiB: {errors}");
        }
        failures += 1;
        kibibytes += 8;
    }
    let _ = fs::remove_dir_all(&directory);
}
