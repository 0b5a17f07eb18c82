//! The bundled server on a disk without room.

use std::{fs, process::Stdio};

use tokio::process::Command;

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
            timeout 5 "$1" --listen 127.0.0.1:0 --data "$0/data""#
        );
        let output = Command::new(&unshare)
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .args([directory.as_os_str(), &server])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .await
            .unwrap();
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.code() == Some(77) || errors.contains("unshare") {
            // this needs a permission of the machine, not a program that can be installed
            println!("not tested: this machine does not allow a file system of its own");
            break;
        }
        if text.starts_with("Listening") {
            assert!(failures > 2, "{failures}");
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
