//! The live page. Its files contain nothing confidential.

use crate::util::encoding::escape_html;

/// The security policy of the page: everything comes from the server, and nothing is written into the page.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the page. It asks for a key, unless the server knows who opens it, and for budgets if there are any. It links to the
/// home of the application.
pub(super) fn html(is_known: bool, has_budgets: bool, home: Option<&str>) -> String {
    let key = if is_known { "none" } else { "asked" };
    let budgets = if has_budgets { "shown" } else { "none" };
    let body = format!("<body data-key=\"{key}\" data-budgets=\"{budgets}\">");
    let home = home.map(|home| format!("  <a href=\"{}\">Home</a>\n", escape_html(home))).unwrap_or_default();
    include_str!("page.html").replace("<body>", &body).replace("</header>", &format!("{home}</header>"))
}

/// Returns the type and the text of a file of the page.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    Some(match path {
        "/page.css" => ("text/css; charset=utf-8", include_str!("page.css")),
        "/page.js" => (SCRIPT, include_str!("page.js")),
        "/connection.js" => (SCRIPT, include_str!("connection.js")),
        "/model.js" => (SCRIPT, include_str!("model.js")),
        "/chart.js" => (SCRIPT, include_str!("chart.js")),
        "/tenants.js" => (SCRIPT, include_str!("tenants.js")),
        "/table.js" => (SCRIPT, include_str!("table.js")),
        _ => return None,
    })
}
