//! Transcripts as JSON: exact, and strict about what they do not know.

use rushlight_session::{Entry, Fault, Segment, SessionErrorKind, Transcript};

fn refused(json: &str) -> String {
    let error = Transcript::from_json(json).unwrap_err();
    assert_eq!(error.kind(), &SessionErrorKind::Transcript);
    assert_eq!(error.fault(), Fault::Request);
    error.to_string()
}

fn with_entry(entry: &str) -> String {
    format!(r#"{{"version": 1, "entries": [{entry}]}}"#)
}

#[test]
fn the_form_is_fixed() {
    let transcript = Transcript::from_entries(vec![
        Entry::instructions("Be brief."),
        Entry::Prompt {
            segments: vec![Segment::text("Hello"), Segment::text("world")],
        },
        Entry::response("Hi \"you\"\u{0007}東京"),
    ])
    .unwrap();
    let json = transcript.to_json();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let text = |text: &str| serde_json::json!({"kind": "text", "text": text});
    let expected = serde_json::json!({"version": 1, "entries": [
        {"kind": "instructions", "segments": [text("Be brief.")]},
        {"kind": "prompt", "segments": [text("Hello"), text("world")]},
        {"kind": "response", "segments": [text("Hi \"you\"\u{0007}東京")]},
    ]});
    assert_eq!(value, expected);
    assert_eq!(Transcript::from_json(&json).unwrap(), transcript);
}

/// FM-1: text segments are joined by a line feed; an empty transcript is empty.
#[test]
fn segments_are_joined_by_a_line_feed() {
    let entry = Entry::Prompt {
        segments: vec![Segment::text("Hello"), Segment::text("world")],
    };
    assert_eq!(entry.text(), "Hello\nworld");
    let empty = Transcript::from_json(&Transcript::new().to_json()).unwrap();
    assert!(empty.is_empty());
}

#[test]
fn what_is_unknown_is_refused_by_name() {
    let message = refused(&with_entry(r#"{"kind": "telepathy", "segments": []}"#));
    assert!(message.contains("telepathy"), "{message}");
    let message = refused(&with_entry(
        r#"{"kind": "prompt", "segments": [{"kind": "smell", "text": "x"}]}"#,
    ));
    assert!(message.contains("smell"), "{message}");
    let message = refused(&with_entry(
        r#"{"kind": "prompt", "segments": [], "mood": 1}"#,
    ));
    assert!(message.contains("mood"), "{message}");
    let message = refused(r#"{"version": 1, "entries": [], "tools": []}"#);
    assert!(message.contains("tools"), "{message}");
}

#[test]
fn another_version_is_refused_before_its_fields_are_judged() {
    let message = refused(r#"{"version": 7, "entries": {"new": "form"}}"#);
    assert!(
        message.contains("version 7") && message.contains("version 1"),
        "{message}"
    );
}

#[test]
fn broken_json_says_where() {
    let message = refused("{\"version\": 1,\n \"entries\": [}");
    assert!(message.contains("line 2 column"), "{message}");
    refused("");
    refused("[]");
    refused(r#"{"version": 1}"#);
}

#[test]
fn instructions_stand_first_or_nowhere() {
    let entries = vec![Entry::prompt("Hi"), Entry::instructions("Late.")];
    let error = Transcript::from_entries(entries).unwrap_err();
    assert!(error.to_string().starts_with("entry 1"), "{error}");
    let twice = vec![Entry::instructions("One."), Entry::instructions("Two.")];
    assert!(Transcript::from_entries(twice).is_err());
}
