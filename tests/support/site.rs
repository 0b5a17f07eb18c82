//! A site at http://localhost with its own users, and a real browser with virtual authenticators.

use std::time::Duration;

use axum::{Router, extract::RawQuery, response::Html, routing::get};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, NewUser, Password, Passwords, Tenant,
    auth::{AuthServiceBuilder, Passkeys, Totp},
    policy::Policy,
};

use crate::{
    support::chromium::{Chromium, TOTP},
    world::{ADA, ADA_PASSWORD, World, challenge},
};

/// A site whose users Ada and Grace sign in to the site itself, and to the clients `web` (one step), `mfa` (two) and `shared` (one,
/// or none for a signed-in user).
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) browser: Chromium,
    pub(crate) origin: String,
    /// Another origin of the same host.
    pub(crate) foreign: String,
    /// The queries that arrived at the redirect URI.
    back: mpsc::UnboundedReceiver<String>,
}

impl Site {
    /// Returns `None` if there is no browser.
    pub(crate) async fn new(name: &str) -> Option<Self> {
        Self::with(name, |service, _| service, Router::new()).await
    }

    /// Creates a site with more settings, which learn the other origin. It serves these routes at the other origin.
    pub(crate) async fn with(
        name: &str,
        more: impl FnOnce(AuthServiceBuilder, &str) -> AuthServiceBuilder,
        elsewhere: Router,
    ) -> Option<Self> {
        let browser = Chromium::start(name).await?;
        let (listener, origin) = listen().await;
        let (other, foreign) = listen().await;
        let (world, acme) = (World::new().await, Tenant::parse("acme").unwrap());
        let client = |id: &str| {
            let client = Client::new(id, acme.clone()).unwrap().scopes("openid").unwrap();
            client.name("Expenses").unwrap().insecure_localhost(&format!("{origin}/callback")).unwrap()
        };
        let sharing = client("shared").single_sign_on();
        let clients =
            ClientTable::new([client("web"), client("mfa").policy(Policy::any(2).unwrap()), sharing]).unwrap();
        let service = AuthService::builder(&origin, world.store.clone())
            .clients(clients)
            .users(world.users.clone())
            .client_ip(ClientIp::unknown())
            .first_party(acme)
            .insecure_loopback()
            .passkeys(Passkeys::new("localhost"))
            .totp(Totp::new())
            .sms(world.outbox.clone())
            .email(world.outbox.clone())
            .passwords(Passwords::insecure_fast())
            .clock(world.clock.clone());
        let service = more(service, &foreign).build().unwrap();
        let (tell, back) = mpsc::unbounded_channel();
        let callback = async move |RawQuery(query): RawQuery| drop(tell.send(query.unwrap_or_default()));
        let empty = Router::new().route("/", get(async || Html("<!doctype html><title>Empty</title>")));
        let app = empty.clone().route("/callback", get(callback)).fallback_service(service);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        tokio::spawn(async move { axum::serve(other, empty.merge(elsewhere)).await.unwrap() });
        Some(Self { world, browser, origin, foreign, back })
    }

    /// Opens the login page of a client.
    pub(crate) async fn log_in(&mut self, client: &str) {
        let (origin, challenge) = (&self.origin, challenge());
        let link = format!(
            "{origin}/authorize?client_id={client}&redirect_uri={origin}/callback&response_type=code&scope=openid\
             &code_challenge={challenge}&code_challenge_method=S256&prompt=login"
        );
        self.browser.open(&link).await;
    }

    /// Opens the account page. The user proves two steps first, by keyboard.
    pub(crate) async fn open_account(&mut self) {
        let page = format!("{}/sign-in?return_to=%2Faccount%2Fsecurity&max_age=0&steps=2", self.origin);
        self.browser.open(&page).await;
        self.prove_two_steps().await;
        self.until("location.pathname === '/account/security' && shown('all') && idle()").await;
    }

    /// Proves the password and the mailbox of Ada.
    pub(crate) async fn prove_two_steps(&mut self) {
        self.prove_password().await;
        self.press_button("email").await;
        self.focus("otp").await;
        let code = self.world.code(ADA).await;
        self.enter(&code).await;
    }

    /// Creates a user `lone` with the password of Ada, and nothing else.
    pub(crate) async fn create_lone(&self) {
        let hash = Passwords::insecure_fast().hash(Password::new(ADA_PASSWORD)).await.unwrap();
        let lone = NewUser::new("u-lone".parse().unwrap(), "lone".parse().unwrap()).password(hash);
        self.world.users.create(&Tenant::parse("acme").unwrap(), lone).await.unwrap();
    }

    /// Returns the code that an app shows for the key in the element with this id.
    pub(crate) async fn app_code(&mut self, id: &str, seconds: u64) -> String {
        self.ask(&format!("{TOTP}('{id}', {seconds})")).await.as_str().unwrap().to_owned()
    }

    /// Begins to count anew, if the pages run `COUNTS`.
    pub(crate) async fn reset_counts(&mut self) {
        self.ask("for (const name of ['buttons', 'fields']) sessionStorage.removeItem(name)").await;
    }

    /// Returns how many buttons and links were pressed and how many fields were filled in.
    pub(crate) async fn counts(&mut self) -> (u64, u64) {
        let counted = self.ask("['buttons', 'fields'].map((name) => Number(sessionStorage.getItem(name)))").await;
        (counted[0].as_u64().unwrap(), counted[1].as_u64().unwrap())
    }

    /// Enters the name and the password of Ada.
    pub(crate) async fn prove_password(&mut self) {
        self.prove_password_of(ADA).await;
    }

    /// Enters this name and the password of Ada.
    pub(crate) async fn prove_password_of(&mut self, who: &str) {
        self.focus("identifier").await;
        self.enter(who).await;
        self.press_button("password").await;
        self.focus("secret").await;
        self.enter(ADA_PASSWORD).await;
    }

    /// Adds a passkey on the open account page, on the only authenticator whose user is present.
    pub(crate) async fn enrol(&mut self, authenticator: &str) {
        self.browser.set_present(authenticator, true).await;
        self.press_button("add-passkey").await;
        self.until("text('done').startsWith('The passkey was added.') && idle()").await;
        self.browser.set_present(authenticator, false).await;
    }

    /// Opens the login page of a client and uses a passkey with the button, without a name.
    pub(crate) async fn use_passkey(&mut self, client: &str, authenticator: &str) {
        self.run_first(IGNORES_SUGGESTIONS).await;
        self.log_in(client).await;
        self.focus("identifier").await;
        self.until("document.body.dataset.suggested").await;
        self.browser.set_present(authenticator, true).await;
        self.press_button("with-passkey").await;
        self.until("location.pathname === '/callback' || !shown('who') || text('message') !== ''").await;
        self.browser.set_present(authenticator, false).await;
    }

    /// Moves the focus to the button with this id or value, and presses Enter.
    pub(crate) async fn press_button(&mut self, name: &str) {
        let find = format!("document.querySelector('button#{name}, #ways button[value={name}]')");
        self.until(&format!("{find}?.offsetParent && !{find}.disabled && idle()")).await;
        self.ask(&format!("{find}.focus()")).await;
        self.browser.press("Enter").await;
    }

    /// Moves the focus to the button or link with this selector by the Tab key, and presses Enter.
    pub(crate) async fn tab_to(&mut self, selector: &str) {
        let find = format!("document.querySelector('{selector}')");
        self.until(&format!("{find}?.offsetParent && !{find}.disabled && idle()")).await;
        for _ in 0..60 {
            if self.ask(&format!("document.activeElement === {find}")).await == true {
                return self.browser.press("Enter").await;
            }
            self.browser.press("Tab").await;
        }
        panic!("the Tab key does not lead to {selector}");
    }

    /// Checks that the page fits on these screens, and stores pictures of it in the folder that `TOLLGATE_SCREENSHOTS` names. The
    /// last one remains.
    pub(crate) async fn fits(&mut self, name: &str, screens: &[(&str, u32)]) {
        for (scheme, width) in screens {
            self.browser.look(scheme, *width).await;
            assert_eq!(
                self.ask("document.documentElement.scrollWidth <= innerWidth").await,
                true,
                "{name} is too wide"
            );
            if let Some(folder) = std::env::var_os("TOLLGATE_SCREENSHOTS") {
                let file = std::path::Path::new(&folder).join(format!("{name}-{scheme}-{width}.png"));
                self.browser.take_picture(&file).await;
            }
        }
    }

    /// Waits until the element with this id has the focus.
    pub(crate) async fn focus(&mut self, id: &str) {
        self.until(&format!("document.activeElement.id === '{id}' && idle()")).await;
    }

    /// Waits for a condition. `idle`, `text` and `shown` look at the page.
    pub(crate) async fn until(&mut self, script: &str) {
        let idle = "() => document.readyState === 'complete' && !document.body.hasAttribute('aria-busy')";
        let text = "(id) => document.getElementById(id).textContent";
        let shown = "(id) => Boolean(document.getElementById(id)?.getClientRects().length)";
        self.browser.until(&format!("((idle, text, shown) => {script})({idle}, {text}, {shown})")).await;
    }

    /// Advances the time of the server and of the page.
    pub(crate) async fn advance(&mut self, seconds: u64) {
        self.world.advance(seconds);
        self.ask(&format!("{{ const now = Date.now; Date.now = () => now() + {seconds} * 1000; }}")).await;
    }

    /// Waits until the page shows this message.
    pub(crate) async fn says(&mut self, words: &str) {
        self.until(&format!("text('message') === {} && idle()", json!(words))).await;
    }

    /// Runs a script before those of each page that is opened from now on.
    pub(crate) async fn run_first(&mut self, script: &str) {
        self.browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script })).await;
    }

    pub(crate) async fn ask(&mut self, script: &str) -> Value {
        self.browser.ask(script).await.unwrap()
    }

    /// Returns the texts of all visible elements with this selector.
    pub(crate) async fn texts(&mut self, selector: &str) -> Vec<String> {
        let visible =
            format!("[...document.querySelectorAll('{selector}')].filter((one) => one.getClientRects().length)");
        let texts = format!("{visible}.map((one) => one.innerText)");
        serde_json::from_value(self.ask(&texts).await).unwrap()
    }

    pub(crate) async fn enter(&mut self, text: &str) {
        self.browser.insert(text).await;
        self.browser.press("Enter").await;
    }

    /// Waits until the browser is back at the application, with a code.
    pub(crate) async fn comes_back(&mut self) {
        let came = timeout(Duration::from_secs(60), self.back.recv()).await;
        let query = came.unwrap_or_else(|_| panic!("the browser never went back")).unwrap();
        assert!(query.starts_with("code="), "{query}");
        self.until("location.pathname === '/callback'").await;
    }

    /// Returns the number of logins that the browser has a cookie of.
    pub(crate) async fn logins(&mut self) -> usize {
        let found = self.browser.call("Network.getCookies", json!({ "urls": [self.origin] })).await;
        let names = found["cookies"].as_array().unwrap().iter().map(|cookie| cookie["name"].as_str().unwrap());
        names.filter(|name| name.starts_with("auth_session_")).count()
    }
}

/// Counts what users do: the buttons and links that they press, and the fields that they fill in.
pub(crate) const COUNTS: &str = "
const count = (name) => sessionStorage.setItem(name, 1 + Number(sessionStorage.getItem(name)));
addEventListener('click', ({ isTrusted, target }) => isTrusted && target.closest('button, a') && count('buttons'), true);
addEventListener('change', ({ isTrusted, target }) => isTrusted && target.type !== 'checkbox' && count('fields'), true);";

/// A user who looks at no suggestion. Without it, a virtual authenticator takes the first one.
pub(crate) const IGNORES_SUGGESTIONS: &str = "
const get = navigator.credentials.get.bind(navigator.credentials);
navigator.credentials.get = (options) => options.mediation !== 'conditional' ? get(options) : new Promise((_, end) => {
  document.body.dataset.suggested = 'yes';
  options.signal.addEventListener('abort', () => {
    document.cookie = 'aborted=yes; path=/'; // visible to the next page at once, unlike the storage
    end(options.signal.reason);
  });
});";

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("http://localhost:{port}"))
}
