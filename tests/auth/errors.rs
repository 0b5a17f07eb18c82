//! Error responses in both formats. They never contain anything from the request.

use http::Request;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::world::{ADA, ADA_PHONE, Answer, Browser, World, encode, parameters, query};

#[tokio::test]
async fn both_error_formats_contain_the_same_information() {
    let world = World::new().await;
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    browser.ask("web", &id, "sms", ADA_PHONE).await;
    let mut body = parameters("web");
    body["session_id"] = json!(id);
    let post =
        |path: &str, body: &Value| (Request::post(path).header("content-type", "application/json"), body.to_string());
    let mut sms = body.clone();
    sms["method"] = json!("sms");
    sms["phone_number"] = json!(ADA_PHONE);
    for (at, (request, body)) in [
        post("/authentication/complete", &body),
        post("/authentication/verify-otp", &body),
        post("/authentication/authenticate", &sms),
        post("/authentication/start", &json!({})),
        (Request::get("/authorize"), String::new()),
        (Request::get("/nothing"), String::new()),
        (Request::put("/authorize"), String::new()),
        (Request::get("/authentication/status?session_id=x"), String::new()),
        (Request::post("/authentication/start"), String::new()),
    ]
    .into_iter()
    .enumerate()
    {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut shapes = Vec::new();
        for accept in ["application/json", "application/problem+json", "text/plain;q=0.1, Application/Problem+JSON"] {
            let mut request = Request::builder().method(parts.method.clone()).uri(parts.uri.clone());
            *request.headers_mut().unwrap() = parts.headers.clone();
            shapes.push(browser.send(request.header("accept", accept), body.clone()).await);
        }
        let [plain, problem, other] = &shapes[..] else { panic!("three") };
        assert_eq!(problem.whole(), other.whole(), "{at}");
        assert_eq!(plain.header("content-type"), "application/json");
        assert_eq!(problem.header("content-type"), "application/problem+json");
        let members = |answer: &Answer| -> Map<String, Value> { answer.json().as_object().unwrap().clone() };
        let (plain_members, mut problem_members) = (members(plain), members(problem));
        assert_eq!(problem_members.remove("type").unwrap(), "about:blank");
        assert_eq!(problem_members.remove("title").unwrap(), problem.status.canonical_reason().unwrap());
        assert_eq!(problem_members.remove("detail"), plain_members.get("error_description").cloned());
        // there, `status` is the HTTP status, so the status of the login has another name
        let number = problem_members.remove("status").unwrap();
        assert_eq!(number, problem.status.as_u16(), "{at} {problem:?}");
        if let Some(status) = problem_members.remove("login_status") {
            problem_members.insert("status".into(), status);
        }
        assert_eq!(problem_members, plain_members, "{at}");
        // and no name appears twice in the text
        for name in ["\"status\":", "\"error\":", "\"detail\":"] {
            assert_eq!(problem.text.matches(name).count(), 1, "{at} {}", problem.text);
        }
        let headers = |answer: &Answer| {
            let mut headers = answer.headers.clone();
            headers.remove("content-type");
            headers.remove("x-ratelimit-remaining");
            headers
        };
        assert_eq!(headers(plain), headers(problem));
    }
}

/// Part of every hostile value, so that it is found wherever it comes back.
const MARK: &str = "h0st1le";

fn hostile() -> impl Strategy<Value = Value> {
    let around = prop_oneof![
        any::<String>(),
        "\\PC{0,20}",
        "[\\x00-\\x7f]{0,20}",
        Just("<script>alert(1)</script>".to_owned()),
        Just("\"},{\"error\":\"".to_owned()),
        Just("\r\nset-cookie: a=b\r\n".to_owned()),
        Just("%0d%0aset-cookie:%20a=b".to_owned()),
        Just("${jndi:ldap://x}{{7*7}}' OR 1=1 --".to_owned()),
        Just("\u{202e}\u{0}\u{feff}".to_owned()),
        Just("a".repeat(5000)),
    ];
    let text = (around.clone(), around).prop_map(|(before, after)| json!(format!("{before}{MARK}{after}")));
    prop_oneof![
        8 => text,
        1 => any::<i64>().prop_map(|number| json!(number)),
        1 => any::<f64>().prop_map(|number| json!(number)),
        1 => Just(Value::Null),
        1 => Just(json!(true)),
        1 => Just(json!([MARK])),
        1 => Just(json!({ MARK: [{ MARK: MARK }] })),
        1 => Just(json!("")),
        1 => Just(json!("password")),
        1 => Just(json!("+15555550100")),
        1 => Just(json!("ada@example.com")),
    ]
}

const FIELDS: &[&str] = &[
    "client_id",
    "redirect_uri",
    "response_type",
    "scope",
    "code_challenge",
    "code_challenge_method",
    "session_id",
    "identifier",
    "method",
    "username",
    "password",
    "phone_number",
    "email",
    "otp",
    "acr_values",
    "state",
    "provider",
    "challenge",
    "response",
    "prompt",
    "max_age",
    "h0st1le",
];

/// Some of the members are valid, some are not.
fn body() -> impl Strategy<Value = Vec<(usize, Value)>> {
    prop::collection::vec((0..FIELDS.len(), hostile()), 1..4)
}

fn check(answer: &Answer, asked: &str) {
    assert!(!answer.status.is_server_error(), "{asked} {answer:?}");
    assert!(!answer.text.contains(MARK), "{asked} {answer:?}");
    for (name, value) in &answer.headers {
        // the query is passed on to the login page, and the state to the client
        let is_passed_on = name == "location";
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        assert!(is_passed_on || !text.contains(MARK), "{asked} {answer:?}");
        if is_passed_on {
            let ours = ["/authentication/start?", "https://app.example/callback?"];
            assert!(ours.iter().any(|start| text.starts_with(start)), "{asked} {answer:?}");
            let description = answer.redirected("error_description").unwrap_or_default();
            assert!(!description.contains(MARK), "{asked} {answer:?}");
        }
    }
    if answer.status.is_client_error() {
        assert!(!answer.error().is_empty(), "{asked} {answer:?}");
    }
}

async fn attack(browser: &mut Browser, id: &str, members: &[(usize, Value)]) {
    let mut body = parameters("web");
    for (name, value) in [("session_id", id), ("identifier", ADA), ("method", "sms"), ("phone_number", ADA_PHONE)] {
        body[name] = json!(value);
    }
    for (name, value) in [("username", "ada"), ("password", "wrong"), ("otp", "000000"), ("email", ADA)] {
        body[name] = json!(value);
    }
    for (at, value) in members {
        body[FIELDS[*at]] = value.clone();
    }
    let text = body.to_string();
    for endpoint in ["start", "authenticate", "verify-otp", "complete"] {
        let request = Request::post(format!("/authentication/{endpoint}")).header("content-type", "application/json");
        // keep only the cookies of this login, however many logins have begun
        let mut browser = browser.clone();
        check(&browser.send(request, text.clone()).await, &text);
    }
    let pairs: Vec<_> = body.as_object().unwrap().iter().collect();
    let pairs = pairs.iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encode(&value))
    });
    let target = pairs.collect::<Vec<_>>().join("&");
    for path in ["/authorize", "/authentication/start", "/authentication/status"] {
        for accept in ["*/*", "text/html", "application/json"] {
            let Ok(uri) = format!("{path}?{target}").parse::<http::Uri>() else { continue };
            let answer = browser.clone().send(Request::get(uri).header("accept", accept), "").await;
            assert!(!answer.status.is_server_error() && !answer.text.contains(MARK), "{target} {answer:?}");
            if answer.header("content-type") == "application/json" || answer.status == 302 {
                check(&answer, &target);
            }
        }
    }
}

fn run(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn c114_an_error_contains_nothing_of_the_request(members in body()) {
        run(async {
            let world = World::new().await;
            let mut browser = world.browser();
            let id = browser.start("web", ADA).await;
            attack(&mut browser, &id, &members).await;
        });
    }

    #[test]
    fn c114_any_body_gets_a_response(body in prop::collection::vec(any::<u8>(), 0..300), near in "[\\[{}\\]:,\"\\\\ua0-9client_id ]{0,60}") {
        run(async {
            let world = World::new().await;
            let mut browser = world.browser();
            for endpoint in ["start", "authenticate", "verify-otp", "complete"] {
                for body in [body.clone(), near.clone().into_bytes()] {
                    let request = Request::post(format!("/authentication/{endpoint}"));
                    let body = http_body_util::Full::new(bytes::Bytes::from(body));
                    let request = request.header("content-type", "application/json").body(body).unwrap();
                    let answer = browser.serve(request).await;
                    assert!(answer.status.is_client_error(), "{answer:?}");
                }
            }
        });
    }

    #[test]
    fn c114_any_target_gets_a_response(tail in "[!-~]{0,80}", path in "/(authorize|authentication/(start|status|x)|[!-~]{0,20})") {
        run(async {
            let Ok(uri) = format!("{path}?{tail}").parse::<http::Uri>() else { return };
            let world = World::new().await;
            for method in ["GET", "HEAD", "POST", "OPTIONS", "PUT"] {
                let answer = world.browser().send(Request::builder().method(method).uri(uri.clone()), "").await;
                assert!(!answer.status.is_server_error() || method == "CONNECT", "{answer:?}");
            }
        });
    }
}

#[tokio::test]
async fn an_error_page_contains_nothing_of_the_request() {
    let world = World::new().await;
    for target in [
        format!("/authorize?client_id={MARK}%3Cscript%3E"),
        format!("/authorize?{}&redirect_uri={MARK}", query("web")),
        format!("/authentication/start?client_id=%22{MARK}"),
        format!("/authorize?{MARK}=%"),
    ] {
        let page = world.browser().send(Request::get(&target).header("accept", "text/html"), "").await;
        assert!(page.status.is_client_error() && page.header("content-type").starts_with("text/html"), "{page:?}");
        assert!(!format!("{page:?}").contains(MARK), "{page:?}");
        page.own();
    }
}
