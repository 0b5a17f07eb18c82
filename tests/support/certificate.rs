//! A certificate authority that is valid for a day, and a server certificate for `localhost`.

use std::{fs, path::PathBuf, process::Command};

use super::programs::{missing, program};

pub(crate) struct Certificate {
    /// The certificate of the authority in PEM.
    pub(crate) authority: Vec<u8>,
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    directory: PathBuf,
}

impl Certificate {
    /// Creates the certificates. Returns `None` if openssl is not installed. `name` must be unique
    /// among tests.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let Some(openssl) = program(&["openssl"]) else {
            missing("openssl is not on PATH");
            return None;
        };
        let directory =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("certificate-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let make = |arguments: &str| {
            let output = Command::new(&openssl)
                .current_dir(&directory)
                .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1".split(' '))
                .args(arguments.split(' '))
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        make("-keyout ca.key -out ca.pem -subj /CN=authority -addext keyUsage=keyCertSign");
        make(
            "-keyout server.key -out server.pem -subj /CN=server -CA ca.pem -CAkey ca.key \
             -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost",
        );
        let authority = fs::read(directory.join("ca.pem")).unwrap();
        Some(Self { authority, chain: directory.join("server.pem"), key: directory.join("server.key"), directory })
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
