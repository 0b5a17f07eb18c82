//! Checks of what users see, on any page in a real browser: accessibility with axe-core, phones, keyboards, and the language.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{chromium::Chromium, programs::missing};

/// A color scheme, and the width of a screen.
pub(crate) type Look = (&'static str, u32);

/// The width of a small phone.
pub(crate) const PHONE: u32 = 360;
pub(crate) const DESKTOP: u32 = 1280;

pub(crate) struct Inspector {
    axe: String,
    language: &'static str,
    looks: Vec<Look>,
    /// The words that only other languages have.
    foreign: BTreeSet<String>,
    /// Where pictures of all pages are stored: `TOLLGATE_SCREENSHOTS`.
    pictures: Option<PathBuf>,
}

fn words(language: &str) -> BTreeSet<String> {
    let path = format!("{}/src/words/{language}.txt", env!("CARGO_MANIFEST_DIR"));
    let file = fs::read_to_string(path).unwrap();
    let texts = file.lines().filter_map(|line| line.split_once(" = ")).map(|(_, text)| text);
    texts.flat_map(words_of).collect()
}

/// Returns the words of a text, without addresses, times and names in braces.
fn words_of(text: &str) -> BTreeSet<String> {
    let is_plain =
        |part: &&str| !part.contains(['@', '{', '}', '/', '•', '*', '…']) && !part.contains(char::is_numeric);
    let words = text.split_whitespace().filter(is_plain).flat_map(|part| part.split(|c: char| !c.is_alphabetic()));
    words.filter(|word| word.chars().count() > 1).map(str::to_lowercase).collect()
}

impl Inspector {
    /// Looks at pages in this language, in each of these ways. Returns `None` and prints a message if axe-core is not installed.
    pub(crate) fn find(language: &'static str, looks: &[Look]) -> Option<Self> {
        let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/axe/node_modules/axe-core/axe.min.js");
        let Ok(axe) = fs::read_to_string(axe) else {
            missing("axe-core is not installed: run `npm ci` in tests/axe");
            return None;
        };
        let foreign = if language == "en" { BTreeSet::new() } else { &words("en") - &words(language) };
        let pictures = env::var_os("TOLLGATE_SCREENSHOTS").map(PathBuf::from);
        Some(Self { axe, language, looks: looks.to_vec(), foreign, pictures })
    }

    /// Checks the open page, and that the browser has complained about nothing but the answers to wrong inputs since the last
    /// page.
    pub(crate) async fn inspect(&self, tab: &mut Chromium, name: &str) {
        let faults = self.find_faults(tab, name).await;
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }

    /// Returns what is wrong with the open page.
    pub(crate) async fn find_faults(&self, tab: &mut Chromium, name: &str) -> Vec<String> {
        let is_answer = |line: &String| line.contains("responded with a status of 4");
        let mut faults: Vec<_> = tab.complaints().into_iter().filter(|line| !is_answer(line)).collect();
        let language = tab.ask("document.documentElement.lang").await.unwrap();
        let seen = tab.ask(TEXTS).await.unwrap();
        let foreign = &words_of(seen.as_str().unwrap()) & &self.foreign;
        if language != self.language || !foreign.is_empty() {
            faults.push(format!("another language: {language} {foreign:?} in {seen}"));
        }
        faults.extend(
            self.walk_by_keyboard(tab).await.into_iter().map(|it| format!("not reached by Tab, or not visibly: {it}")),
        );
        for (scheme, width) in &self.looks {
            tab.look(scheme, *width).await;
            if let Some(folder) = &self.pictures {
                tab.take_picture(&folder.join(format!("{}-{name}-{scheme}-{width}.png", self.language))).await;
            }
            for (what, script) in [("too wide", format!("({WIDE})({width})")), ("axe", self.axe(tab).await.to_owned())]
            {
                let found = tab.ask(&script).await.unwrap();
                faults.extend(found.as_array().unwrap().iter().map(|it| format!("{what} ({scheme}, {width}): {it}")));
            }
        }
        // what these checks did is not the page's fault
        tab.complaints();
        faults
    }

    /// Returns the script that runs axe-core, which is loaded into the page before.
    async fn axe(&self, tab: &mut Chromium) -> &'static str {
        if tab.ask("Boolean(globalThis.axe)").await.unwrap() == false {
            tab.ask(&format!("{{{}}}; 0", self.axe)).await.unwrap();
        }
        AXE
    }

    /// Returns what the Tab key does not reach, and where users do not see where they are.
    async fn walk_by_keyboard(&self, tab: &mut Chromium) -> Vec<Value> {
        let count = tab.ask(&format!("({BEGIN})()")).await.unwrap().as_u64().unwrap();
        // one round, also if the focus stops a few times between the end and the begin of the page
        for _ in 0..2 * (count + 2) {
            tab.press("Tab").await;
            if tab.ask("keyboard.note()").await.unwrap() == 0 {
                break;
            }
        }
        let left = tab.ask("keyboard.end()").await.unwrap();
        left.as_array().unwrap().clone()
    }
}

/// All visible texts that are in the language of the page.
const TEXTS: &str = "(() => {
    const isOwn = (element) => element?.checkVisibility() && !element.closest('[lang]:not(html), script, style, noscript, code');
    const texts = [document.title];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (isOwn(walker.currentNode.parentElement)) texts.push(walker.currentNode.data);
    for (const name of ['aria-label', 'placeholder', 'alt', 'title']) {
        for (const element of document.querySelectorAll(`[${name}]`)) if (isOwn(element)) texts.push(element.getAttribute(name));
    }
    return texts.join(' ');
})()";

/// The elements that are wider than the screen.
const WIDE: &str = "async (width) => {
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    if (document.documentElement.scrollWidth <= width) return [];
    const all = [...document.body.querySelectorAll('*')].filter((each) => each.getBoundingClientRect().right > width + 1);
    return [document.documentElement.scrollWidth, ...all.slice(0, 5).map((each) => each.outerHTML.slice(0, 200))];
}";

const AXE: &str = "axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations'],
}).then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => [id, html, failureSummary])))";

/// Notes which elements get the focus.
const BEGIN: &str = "() => {
    const root = document.querySelector('dialog[open]') ?? document;
    const all = root.querySelectorAll('a[href], button, input, select, textarea, [tabindex]');
    const isUsable = (each) => each.checkVisibility() && !each.disabled && each.tabIndex >= 0;
    const left = new Set([...all].filter(isUsable));
    const first = document.activeElement;
    globalThis.keyboard = {
        note: () => {
            const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
            if (outlineStyle !== 'none' && outlineWidth !== '0px') left.delete(document.activeElement);
            return left.size;
        },
        end: () => {
            document.activeElement.blur();
            first?.focus();
            return [...left].filter((each) => each.isConnected && isUsable(each)).map((each) => each.outerHTML.slice(0, 200));
        },
    };
    return left.size;
}";
