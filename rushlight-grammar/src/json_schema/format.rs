//! The formats that are asserted, each as the language of its texts.
//!
//! A format that is not in the table is an annotation, as the specification says. Where a rule is not regular, or only
//! at a size out of proportion, the language here is a subset: no text that breaks the rule is ever produced.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use jsonschema::ValidationOptions;
use llguidance::derivre::{Regex, RegexBuilder};

use super::pattern::whole;
use super::rx::Rx;

/// The formats of the table.
const NAMES: [&str; 22] = [
    "date",
    "time",
    "date-time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "host-name",
    "idn-hostname",
    "ipv4",
    "ip-address",
    "ipv6",
    "uri",
    "url",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "uuid",
    "json-pointer",
    "relative-json-pointer",
    "byte",
];

/// Makes `options` check every format of the table as the grammar does, whatever the draft.
pub(super) fn register<'a>(mut options: ValidationOptions<'a>) -> ValidationOptions<'a> {
    for name in NAMES.into_iter().chain(["semver"]) {
        options = options.with_format(name, move |text: &str| matches(name, text));
    }
    options
}

/// Whether `text` is in the language of `format`, whose automaton is made once.
fn matches(format: &'static str, text: &str) -> bool {
    static MADE: OnceLock<Mutex<HashMap<&'static str, Option<Regex>>>> = OnceLock::new();
    let mut made = MADE
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let regex = made.entry(format).or_insert_with(|| {
        let mut builder = RegexBuilder::new();
        let expr = builder.mk(&language(format)?.to_ast()).ok()?;
        Some(builder.into_regex(expr))
    });
    regex.as_mut().is_some_and(|regex| regex.is_match(text))
}

/// The language of `format`, or `None` where it asserts nothing.
pub(super) fn language(format: &str) -> Option<Rx> {
    Some(match format {
        "date" => whole(DATE),
        "time" => whole(&time()),
        "date-time" => whole(&format!("(?:{DATE})[Tt](?:{})", time())),
        "duration" => whole(&duration()),
        "email" => whole(&email(ATEXT, LABEL)),
        "idn-email" => whole(&email(
            r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\p{L}\p{N}-]",
            IDN_LABEL,
        )),
        // Counting the characters of labels over all of Unicode is out of proportion: only names in ASCII are written.
        "hostname" | "host-name" | "idn-hostname" => host(),
        "ipv4" | "ip-address" => whole(&ipv4()),
        "ipv6" => whole(&ipv6()),
        "uri" | "url" => whole(&uri(ASCII, "")),
        "uri-reference" => whole(&reference(ASCII, "")),
        "iri" => whole(&uri(UCS, PRIVATE)),
        "iri-reference" => whole(&reference(UCS, PRIVATE)),
        "uri-template" => whole(&template()),
        "uuid" => whole("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
        "json-pointer" => whole(POINTER),
        "relative-json-pointer" => whole(&format!("(?:0|[1-9][0-9]*)(?:#|{POINTER})")),
        "byte" => whole("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
        "semver" => whole(SEMVER),
        _ => return None,
    })
}

/// Calendar dates (RFC 3339 `full-date`): months have their lengths, 29 February its leap years. The year 0000 is left out:
/// the calendars behind many validators begin with 0001.
const DATE: &str = concat!(
    "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])",
    "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
);

/// RFC 3339 `full-time`. A leap second is 23:59:60 in UTC; offsets that make it so are left out, except zero.
fn time() -> String {
    let offset = "[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]";
    format!(
        "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|{offset})|23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00)"
    )
}

/// RFC 3339 appendix A: units in order and without a gap.
fn duration() -> String {
    let clock = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
    let date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
    format!("P(?:{date}(?:{clock})?|{clock}|[0-9]+W)")
}

const ATEXT: &str = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]";
/// A host label (RFC 1123): hyphens neither first nor last.
const LABEL: &str = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const IDN_LABEL: &str = r"[\p{L}\p{Nd}](?:[\p{L}\p{Nd}-]{0,61}[\p{L}\p{Nd}])?";

fn email(atext: &str, label: &str) -> String {
    let host = format!("{label}(?:\\.{label})*");
    format!("{atext}+(?:\\.{atext}+)*@(?:{host}|\\[{}\\])", ipv4())
}

/// Labels joined by dots, 253 characters at most: up to ten of 24 characters, or four of 63. Counting characters across
/// labels as well would multiply the states of both counts. Hyphens third and fourth mark A-labels, whose decoding is not
/// regular: they are left out.
fn host() -> Rx {
    let a = "[a-zA-Z0-9]";
    let h = "[a-zA-Z0-9-]";
    let label = |most: u32| {
        format!(
            "{a}(?:{h}?{h}?{a}|{h}(?:{a}{h}|-{a}){h}{{0,{}}}{a})?",
            most - 5
        )
    };
    whole(&format!(
        "(?:{0}\\.){{0,9}}{0}|(?:{1}\\.){{0,2}}{1}|(?:{1}\\.){{3}}{2}",
        label(24),
        label(63),
        label(61)
    ))
}

fn ipv4() -> String {
    let octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    format!("{octet}(?:\\.{octet}){{3}}")
}

/// RFC 4291 section 2.2: eight groups, one run of zeros left out, the last two groups perhaps as IPv4.
fn ipv6() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    let tail = format!("(?:{group}:{group}|{})", ipv4());
    let mut options = vec![format!("(?:{group}:){{6}}{tail}")];
    // `before` groups, the gap, `after` groups: together at most seven.
    for before in 0..=7u32 {
        let head = match before {
            0 => String::new(),
            n => format!("{group}(?::{group}){{{}}}", n - 1),
        };
        let room = 7 - before;
        let mut tails = vec![String::new()];
        if room >= 1 {
            tails.push(group.to_owned());
        }
        if room >= 2 {
            tails.push(format!("(?:{group}:){{0,{}}}{tail}", room - 2));
        }
        options.push(format!("{head}::(?:{})", tails.join("|")));
    }
    options.join("|")
}

const ASCII: &str = "a-zA-Z0-9._~";
/// RFC 3987 `ucschar` beside the ASCII unreserved characters.
const UCS: &str = r"a-zA-Z0-9._~\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}\u{10000}-\u{1fffd}\u{20000}-\u{2fffd}\u{30000}-\u{3fffd}\u{40000}-\u{4fffd}\u{50000}-\u{5fffd}\u{60000}-\u{6fffd}\u{70000}-\u{7fffd}\u{80000}-\u{8fffd}\u{90000}-\u{9fffd}\u{a0000}-\u{afffd}\u{b0000}-\u{bfffd}\u{c0000}-\u{cfffd}\u{d0000}-\u{dfffd}\u{e1000}-\u{efffd}";
const PRIVATE: &str = r"\u{e000}-\u{f8ff}";

/// The parts of RFC 3986 over an alphabet of unreserved characters.
struct UriParts {
    authority: String,
    segment: String,
    segment_nz: String,
    segment_nz_nc: String,
    tail: String,
}

fn uri_parts(unreserved: &str, private: &str) -> UriParts {
    let escape = "%[0-9a-fA-F]{2}";
    let subs = "!$&'()*+,;=";
    let chars = |extra: &str| format!("(?:[{unreserved}{subs}{extra}-]|{escape})");
    let pchar = chars(":@");
    let literal = format!(
        "\\[(?:{}|[vV][0-9a-fA-F]+\\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\\]",
        ipv6()
    );
    let query = chars(&format!(":@/?{private}"));
    let fragment = chars(":@/?");
    UriParts {
        authority: format!(
            "(?:{}*@)?(?:{literal}|{}*)(?::[0-9]*)?",
            chars(":"),
            chars("")
        ),
        segment: format!("{pchar}*"),
        segment_nz: format!("{pchar}+"),
        segment_nz_nc: format!("{}+", chars("@")),
        tail: format!("(?:\\?{query}*)?(?:\\u{{23}}{fragment}*)?"),
    }
}

fn uri(unreserved: &str, private: &str) -> String {
    let UriParts {
        authority,
        segment,
        segment_nz,
        tail,
        ..
    } = uri_parts(unreserved, private);
    format!(
        "[a-zA-Z][a-zA-Z0-9+.-]*:(?://{authority}(?:/{segment})*|/(?:{segment_nz}(?:/{segment})*)?|{segment_nz}(?:/{segment})*|){tail}"
    )
}

fn reference(unreserved: &str, private: &str) -> String {
    let absolute = uri(unreserved, private);
    let UriParts {
        authority,
        segment,
        segment_nz,
        segment_nz_nc,
        tail,
    } = uri_parts(unreserved, private);
    format!(
        "{absolute}|(?://{authority}(?:/{segment})*|/(?:{segment_nz}(?:/{segment})*)?|{segment_nz_nc}(?:/{segment})*|){tail}"
    )
}

/// RFC 6570: literals and expressions.
fn template() -> String {
    let name = "(?:[A-Za-z0-9_]|%[0-9a-fA-F]{2})(?:\\.?(?:[A-Za-z0-9_]|%[0-9a-fA-F]{2}))*";
    let spec = format!("{name}(?::[1-9][0-9]{{0,3}}|\\*)?");
    let literal = r#"[!\u{23}$&(-;=?-\[\]_a-z~\u{a0}-\u{d7ff}\u{f900}-\u{ffef}]|%[0-9a-fA-F]{2}"#;
    format!("(?:{literal}|\\{{[+\\u{{23}}./;?&=,!@|]?{spec}(?:,{spec})*\\}})*")
}

const POINTER: &str = "(?:/(?:[^/~]|~[01])*)*";

/// Semantic Versioning 2.0.0.
const SEMVER: &str = concat!(
    r"(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)",
    r"(?:-(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?",
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, yes: &[&str], no: &[&str]) {
        let rx = language(format).unwrap();
        for text in yes {
            assert_eq!(
                rx.matches(text, &mut 1_000_000),
                Some(true),
                "{format} {text}"
            );
        }
        for text in no {
            assert_eq!(
                rx.matches(text, &mut 1_000_000),
                Some(false),
                "{format} {text}"
            );
        }
    }

    #[test]
    fn dates_know_the_calendar() {
        check(
            "date",
            &[
                "2024-02-29",
                "2000-02-29",
                "1999-12-31",
                "2023-04-30",
                "0001-01-01",
                "0004-02-29",
            ],
            &[
                "0000-01-01",
                "0000-02-29",
                "2023-02-29",
                "1900-02-29",
                "2023-04-31",
                "2023-13-01",
                "2023-00-10",
                "23-01-01",
            ],
        );
        check(
            "date-time",
            &["2024-02-29T23:59:60Z", "1990-12-31t15:59:59.123-08:00"],
            &[
                "2023-02-29T00:00:00Z",
                "2024-01-01T22:59:60Z",
                "2024-01-01T24:00:00Z",
                "2024-01-01T00:00:00",
            ],
        );
        check("time", &["08:30:06Z"], &["8:30:06Z", "08:60:06Z"]);
        check(
            "duration",
            &["P4DT12H30M5S", "P1Y2M", "P2W", "PT36H"],
            &["P", "PT", "P1Y2D", "P1W2D", "PT1D"],
        );
    }

    #[test]
    fn names_and_addresses() {
        check("ipv4", &["127.0.0.1"], &["256.0.0.1", "01.2.3.4", "1.2.3"]);
        check(
            "ipv6",
            &[
                "::",
                "::1",
                "1::",
                "1:2:3:4:5:6:7:8",
                "::ffff:1.2.3.4",
                "1::8",
                "fe80::7:8",
            ],
            &[
                "1",
                ":::",
                "1:2:3:4:5:6:7",
                "1::2::3",
                "12345::",
                "1:2:3:4:5:6:7:8::",
            ],
        );
        check(
            "hostname",
            &[
                "a",
                "www.example.com",
                "a-b.c",
                "h0st",
                "ab",
                "abc",
                "ab-c",
                "a-b-c",
            ],
            &[
                "",
                "-a",
                "a-",
                "a..b",
                "a_b",
                "xn--x",
                "ab--c",
                &"a".repeat(64),
                &"a.".repeat(127),
            ],
        );
        check(
            "hostname",
            &[&"a".repeat(63), "a.b.c.d.e.f", "a-bc-d", "abc--d"],
            &["a.b--", "abc-"],
        );
        check("idn-hostname", &["example.de"], &["-a", "a_", "xn--x"]);
        check(
            "email",
            &["joe.bloggs@example.com", "a+b@c.d", "x@[1.2.3.4]"],
            &["2962", ".a@b.c", "a..b@c", "a@"],
        );
        check(
            "uuid",
            &["2eb8aa08-aa98-11ea-b4aa-73b441d16380"],
            &["2eb8aa08aa9811eab4aa73b441d16380"],
        );
    }

    #[test]
    fn identifiers() {
        check(
            "uri",
            &[
                "http://foo.bar/?baz=qux#quux",
                "urn:oasis:names",
                "mailto:a@b.c",
                "http://[::1]:80/",
                "ftp://u:p@h",
            ],
            &[
                "//foo",
                "/abc",
                "\\\\WINDOWS",
                "http:// x",
                ":// no",
                "bar,://x",
            ],
        );
        check(
            "uri-reference",
            &["/abc", "abc", "#frag", "//foo.bar/x", "", "http://a"],
            &["\\a", "a b", "#a\\b"],
        );
        check("json-pointer", &["", "/a~0b/0", "/"], &["a", "/~2", "/~"]);
        check(
            "relative-json-pointer",
            &["1", "0/foo", "2#"],
            &["/foo", "01/a", "0##"],
        );
        check(
            "uri-template",
            &["http://a/{b}/{c,d*}", "x"],
            &["{", "a}", "{a"],
        );
        check("semver", &["1.0.0", "1.0.0-rc.1+b"], &["1.0", "01.0.0"]);
        check("byte", &["", "aGk=", "aGVsbG8h"], &["a", "aGk"]);
        assert!(NAMES.iter().all(|name| language(name).is_some()));
        assert!(language("int32").is_none());
    }
}
