//! The formats that are asserted, each as the language of its texts.
//!
//! A format that is not in the table is an annotation, as the specification says. Where a rule is not regular, or only
//! at a size out of proportion, the language here is a subset: no text that breaks the rule is ever produced. Beside such a
//! subset stands a wider language, outside of which no text is of the format: complements are taken of it, and proofs hold
//! for it.

use std::cell::Cell;
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

thread_local! {
    static UNDECIDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether `judge` finds a value valid, and no format left it open. Under a complement, a text between the two languages of
/// its format would count as none of the format.
pub(super) fn decidedly(judge: impl FnOnce() -> bool) -> bool {
    UNDECIDED.set(false);
    judge() && !UNDECIDED.get()
}

/// Whether `text` is in the language of `format`; if not but perhaps of the format, that is recorded.
fn matches(format: &'static str, text: &str) -> bool {
    let narrow = is_in(format, false, text);
    if !narrow && is_in(format, true, text) {
        UNDECIDED.set(true);
    }
    narrow
}

/// Whether `text` is in one of the languages of `format`, whose automaton is made once.
fn is_in(format: &'static str, wide: bool, text: &str) -> bool {
    type Made = HashMap<(&'static str, bool), Option<Regex>>;
    static MADE: OnceLock<Mutex<Made>> = OnceLock::new();
    let mut made = MADE
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let regex = made.entry((format, wide)).or_insert_with(|| {
        let language = if wide {
            wider(format)
        } else {
            language(format)
        };
        let mut builder = RegexBuilder::new();
        let expr = builder.mk(&language?.to_ast()).ok()?;
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
        "email" => email(ATEXT, host()),
        "idn-email" => email(
            r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\p{L}\p{N}-]",
            Rx::Plain(format!("{IDN_LABEL}(?:\\.{IDN_LABEL})*")),
        ),
        // Counting the characters of labels over all of Unicode is out of proportion: only names in ASCII are written.
        "hostname" | "host-name" | "idn-hostname" => host(),
        "ipv4" | "ip-address" => whole(&ipv4()),
        "ipv6" => whole(&ipv6()),
        "uri" | "url" => whole(&uri(ASCII, "")),
        "uri-reference" => whole(&reference(ASCII, "")),
        "iri" => whole(&uri(UCS, PRIVATE)),
        "iri-reference" => whole(&reference(UCS, PRIVATE)),
        "uri-template" => whole(&template(
            r#"[!\u{23}$&(-;=?-\[\]_a-z~\u{a0}-\u{d7ff}\u{f900}-\u{ffef}]"#,
        )),
        "uuid" => whole("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
        "json-pointer" => whole(POINTER),
        "relative-json-pointer" => whole(&format!("(?:0|[1-9][0-9]*)(?:#|{POINTER})")),
        "byte" => whole("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
        "semver" => whole(SEMVER),
        _ => return None,
    })
}

/// A language that holds every text of `format`; `None` where [`language`] is that already.
pub(super) fn wider(format: &str) -> Option<Rx> {
    Some(whole(&match format {
        "date" => wide_date(),
        "time" => WIDE_TIME.to_owned(),
        "date-time" => format!("(?:{})[Tt](?:{WIDE_TIME})", wide_date()),
        "email" | "idn-email" => "(?s:.+)@(?s:.+)".to_owned(),
        "hostname" | "host-name" => format!("{LABEL}(?:\\.{LABEL})*\\.?"),
        // RFC 5891 has no other characters of ASCII than these, and which others it has depends on the Unicode version.
        "idn-hostname" => r"[a-zA-Z0-9.\u{80}-\u{10ffff}-]+".to_owned(),
        "uri-template" => template(r#"[^\u{0}-\u{20}"%<>\\^`{|}\u{7f}]"#),
        "relative-json-pointer" => {
            format!("(?:0|[1-9][0-9]*)(?:[+-](?:0|[1-9][0-9]*))?(?:#|{POINTER})")
        }
        _ => return None,
    }))
}

/// Dates of the year 0000 too.
fn wide_date() -> String {
    format!("{DATE}|0000-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])")
}

/// Leap seconds at any offset.
const WIDE_TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

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

/// A local part of at most 64 characters, and a host or an address.
fn email(atext: &str, host: Rx) -> Rx {
    let address = Rx::Plain(format!("\\[{}\\]", ipv4()));
    Rx::cat([
        Rx::and([
            Rx::Plain(format!("{atext}+(?:\\.{atext}+)*")),
            Rx::Plain("[^@]{1,64}".to_owned()),
        ]),
        Rx::Lit("@".to_owned()),
        Rx::alt([host, address]),
    ])
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

/// RFC 6570: characters of `literal`, escapes and expressions.
fn template(literal: &str) -> String {
    let name = "(?:[A-Za-z0-9_]|%[0-9a-fA-F]{2})(?:\\.?(?:[A-Za-z0-9_]|%[0-9a-fA-F]{2}))*";
    let spec = format!("{name}(?::[1-9][0-9]{{0,3}}|\\*)?");
    format!("(?:{literal}|%[0-9a-fA-F]{{2}}|\\{{[+\\u{{23}}./;?&=,!@|]?{spec}(?:,{spec})*\\}})*")
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

    /// Every text that the narrow language has is in the wide one, and so are these, which it lacks.
    #[test]
    fn wider_languages_hold_what_is_left_out() {
        let long = ["a"; 8].map(|a| a.repeat(25)).join(".");
        for (format, inner, between, outside) in [
            ("date", "2024-02-29", "0000-02-29", "2023-02-29"),
            ("time", "23:59:60Z", "15:59:60-08:00", "24:00:00Z"),
            (
                "date-time",
                "2024-02-29T00:00:00Z",
                "1998-12-31T15:59:60-08:00",
                "2023-02-29T00:00:00Z",
            ),
            ("email", "a@b.c", "\"joe bloggs\"@b.c", "2962"),
            ("idn-email", "é@é.c", "\"é é\"@b.c", "é"),
            ("hostname", "a.b", "xn--4gbwdl.xn--wgbh1c", "a_b"),
            ("hostname", "ab-c", long.as_str(), "-a"),
            ("idn-hostname", "example.de", "使用", "a b"),
            ("uri-template", "a{b}", "\u{1f600}'", "a}"),
            ("relative-json-pointer", "0/a", "1-2/a", "/a"),
        ] {
            let (narrow, wide) = (language(format).unwrap(), wider(format).unwrap());
            for (text, in_narrow, in_wide) in [
                (inner, true, true),
                (between, false, true),
                (outside, false, false),
            ] {
                assert_eq!(
                    narrow.matches(text, &mut 1_000_000),
                    Some(in_narrow),
                    "{format} {text}"
                );
                assert_eq!(
                    wide.matches(text, &mut 1_000_000),
                    Some(in_wide),
                    "{format} {text}"
                );
            }
        }
        for name in NAMES {
            if let (Some(narrow), Some(wide)) = (language(name), wider(name)) {
                let lost = Rx::and([narrow, wide.complement()]);
                assert_ne!(lost.is_empty(&mut 1_000_000), Some(false), "{name}");
            }
        }
    }

    /// Where the language counts as exact, the validator behind guards agrees with it.
    #[test]
    fn exact_languages_agree_with_the_validator() {
        let texts = [
            "",
            "a",
            "1.2.3.4",
            "01.2.3.4",
            "1.2.3",
            "256.1.1.1",
            "1.2.3.4 ",
            "::",
            "::1",
            "1::",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::",
            "::2:3:4:5:6:7:8",
            "1::3:4:5:6:7:8",
            "::ffff:1.2.3.4",
            "::ffff:1.2.3.04",
            "1:2:3:4:5:6:1.2.3.4",
            "1:2:3:4:5:6:7:1.2.3.4",
            "fe80::1%eth0",
            "12345::",
            "1:::2",
            ":1",
            "/",
            "/~",
            "/~0",
            "/~2",
            "/a\nb",
            "P1Y",
            "P",
            "P1W",
            "P1Y2D",
            "PT1S",
            "PT",
            "P1DT",
            "PT1H2S",
            "P1Y1W",
            "P2D",
            "P1.5D",
            "2eb8aa08-aa98-11ea-b4aa-73b441d16380",
            "2EB8AA08-AA98-11EA-B4AA-73B441D16380",
            "2eb8aa08aa9811eab4aa73b441d16380",
            "{2eb8aa08-aa98-11ea-b4aa-73b441d16380}",
            "http://a",
            "http://a:80",
            "http://a:x",
            "http://[::1]/",
            "http://[1]/",
            "http://[v1.a]/",
            "http://a%2",
            "http://a%20",
            "a:b",
            "1:b",
            "//a",
            "/a",
            "#",
            "?",
            "a b",
            "a|b",
            "http://é",
            "é:a",
            "http://a/é?\u{e000}",
            "http://a/\u{e000}",
            "http://@",
            "http://a@b@c",
            "://",
            "a:",
            "a://",
            "a:///x",
            "http://a/[",
            "http://a/<",
            "urn:x:y",
            "a#b#c",
        ];
        for name in [
            "duration",
            "ipv4",
            "ipv6",
            "uri",
            "uri-reference",
            "iri",
            "iri-reference",
            "uuid",
            "json-pointer",
        ] {
            assert!(wider(name).is_none());
            let rx = language(name).unwrap();
            let validator = jsonschema::options()
                .with_draft(jsonschema::Draft::Draft202012)
                .should_validate_formats(true)
                .build(&serde_json::json!({"format": name}))
                .unwrap();
            for text in texts {
                let valid = validator.is_valid(&serde_json::json!(text));
                assert_eq!(
                    rx.matches(text, &mut 1_000_000),
                    Some(valid),
                    "{name} {text:?}"
                );
            }
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
