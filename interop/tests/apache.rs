//! Apache with mod_auth_openidc, as a confidential client with a secret.

#![expect(clippy::unwrap_used, reason = "tests may panic")]
#![expect(clippy::print_stderr, reason = "skipped tests print a message")]

#[expect(dead_code, reason = "these tests use only a part of it")]
#[path = "../../tests/support/browser.rs"]
mod browser;
#[path = "../../tests/support/programs.rs"]
mod programs;
mod server;
mod user;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use browser::Browser;
use openidconnect::url::Url;
use server::{Server, reserved_port::ReservedPort};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep},
};
use user::User;

/// For this test only.
const SECRET: &str = "9AsjTzMOhIEEStf4D4ys1qT8_yoIVwrQ1JfkAFyt-Q8";

/// Where systems have the modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// A running Apache, stopped on drop.
struct Apache {
    directory: PathBuf,
    _child: Child,
}

impl Apache {
    async fn start(program: &Path, port: u16, issuer: &str, method: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("tollgate-apache-{}-{port}", std::process::id()));
        fs::create_dir_all(directory.join("pages/app")).unwrap();
        fs::write(directory.join("pages/app/index.html"), "the page").unwrap();
        let text = |(name, value): (&str, &str)| (format!("{{{name}}}"), value.to_owned());
        let values = [
            ("directory", directory.to_str().unwrap()),
            ("port", &port.to_string()),
            ("modules", MODULES),
            ("issuer", issuer),
            ("method", method),
            ("secret", SECRET),
        ];
        let settings = values
            .map(text)
            .iter()
            .fold(include_str!("apache.conf").to_owned(), |settings, (name, value)| settings.replace(name, value));
        fs::write(directory.join("conf"), settings).unwrap();
        let mut apache = Command::new(program);
        // in the foreground
        apache.arg("-f").arg(directory.join("conf")).arg("-DFOREGROUND").kill_on_drop(true);
        let child = apache.spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not start");
            sleep(Duration::from_millis(10)).await;
        }
        Self { directory, _child: child }
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.directory.join("error.log")).unwrap_or_default());
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test]
async fn apache_signs_users_in_with_a_secret() {
    let program = programs::program(&["apache2", "httpd"]);
    let Some(program) = program.filter(|_| Path::new(MODULES).join("mod_auth_openidc.so").is_file()) else {
        return programs::missing("Apache or mod_auth_openidc is not installed");
    };
    for method in ["client_secret_basic", "client_secret_post"] {
        let port = ReservedPort::new();
        let origin = format!("http://127.0.0.1:{}", port.number);
        let callback = format!("{origin}/app/callback");
        let client = format!(
            r#"
            [[clients]]
            id = "apache"
            tenant = "acme"
            redirect_uris = ["{callback}"]
            scopes = ["openid", "email"]
            secrets = ["sha256:ho1C5_8KpOrcV1aWl-H_M4owGx-QWBh1zrBcAeM1ChE"]
            "#
        );
        let server = Server::with_client(&client).await;
        let _apache = Apache::start(&program, port.number, &server.issuer, method).await;
        let mut visitor = Browser::new(&origin, "");
        let to_sign_in = visitor.open("/app/").await;
        assert_eq!(to_sign_in.status, 302, "{to_sign_in:?}");
        let begin = Url::parse(to_sign_in.header("location")).unwrap();
        assert!(begin.as_str().starts_with(&format!("{}/authorize?", server.issuer)), "{begin}");

        let issuer = Url::parse(&server.issuer).unwrap().origin().ascii_serialization();
        let back = User::new(&issuer, &callback).log_in(&begin).await;
        let signed_in = visitor.open(back.as_str()).await;
        assert_eq!((signed_in.status, signed_in.header("location")), (302, &*format!("{origin}/app/")));
        let page = visitor.open("/app/").await;
        assert_eq!((page.status, &*page.text, page.header("x-user")), (200, "the page", "u-1 ada@example.com"));
    }
}
