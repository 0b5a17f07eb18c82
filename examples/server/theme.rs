//! The table `[pages]` of the configuration file: the logo, the colors and the words of the pages. The demo has words of its own.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use tollgate::{
    Language,
    auth::{Colors, Pages},
};

use crate::auth;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Theme {
    pub(crate) home_url: Option<String>,
    logo: Option<WrittenLogo>,
    colors: WrittenColors,
    dark_colors: WrittenColors,
    /// Texts by key, for each language.
    texts: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLogo {
    name: String,
    file: PathBuf,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenColors {
    accent: Option<String>,
    background: Option<String>,
    card: Option<String>,
    text: Option<String>,
}

impl Theme {
    /// Reads the logo from the directory of the configuration file.
    pub(crate) fn read(&self, directory: &Path) -> Result<Pages, Box<dyn Error>> {
        let mut pages = Pages::new().colors(self.colors.read()).dark_colors(self.dark_colors.read());
        if let Some(WrittenLogo { name, file }) = &self.logo {
            let path = directory.join(file);
            let image = fs::read(&path).map_err(|error| format!("pages.logo: {}: {error}", path.display()))?;
            pages = pages.logo(name, image);
        }
        for (language, texts) in &self.texts {
            let language = language.parse().map_err(|error| format!("pages.texts: {error}"))?;
            pages = pages.texts(language, texts.clone());
        }
        let whole = self.home_url.iter().cloned().fold(pages.clone(), Pages::home_url);
        let checked = auth::check(auth::LOCALHOST, |auth| Ok(auth.pages(whole)));
        checked.map_err(|error| format!("pages: {error}"))?;
        Ok(pages)
    }
}

impl WrittenColors {
    fn read(&self) -> Colors {
        let colors = self.accent.iter().fold(Colors::new(), Colors::accent);
        let colors = self.background.iter().fold(colors, Colors::background);
        let colors = self.card.iter().fold(colors, Colors::card);
        self.text.iter().fold(colors, Colors::text)
    }
}

/// Creates the pages of the demo, which say where its codes arrive.
pub(crate) fn demo_pages(origin: &str) -> Pages {
    let at = format!("{origin}/demo/outbox");
    let sent = format!("We have sent a code of {{digits}} digits to {{address}}. In this demo you find it at {at}");
    let perhaps = format!(
        "If {{address}} is yours, we have sent a code of {{digits}} digits to it. In this demo you find it at {at}"
    );
    let german = format!(
        "Wir haben einen Code mit {{digits}} Ziffern an {{address}} gesendet. In dieser Demo finden Sie ihn unter {at}"
    );
    let german_perhaps = format!(
        "Falls {{address}} Ihnen gehört, haben wir einen Code mit {{digits}} Ziffern gesendet. In dieser Demo finden Sie ihn unter {at}"
    );
    let join = format!(
        "We have sent an e-mail to {{address}}. Enter the code of {{digits}} digits from it. In this demo you find it at {at}"
    );
    let german_join = format!(
        "Wir haben eine E-Mail an {{address}} gesendet. Geben Sie den Code mit {{digits}} Ziffern daraus ein. In dieser Demo finden Sie sie unter {at}"
    );
    let contact = format!(
        "A code was sent to {{contact}}. Enter it to confirm that it is yours. In this demo you find it at {at}"
    );
    let german_contact = format!(
        "Ein Code wurde an {{contact}} gesendet. Geben Sie ihn ein, um zu bestätigen, dass Sie dort erreichbar sind. In dieser Demo finden Sie ihn unter {at}"
    );
    let keys = ["login.code_sent", "login.code_maybe_sent", "login.code_join", "account.contact_sent"];
    Pages::new()
        .texts(Language::English, keys.into_iter().zip([sent, perhaps, join, contact]))
        .texts(Language::German, keys.into_iter().zip([german, german_perhaps, german_join, german_contact]))
}
