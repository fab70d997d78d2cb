//! What a hostile file can put into an error: nothing that moves a terminal's cursor.

use std::error::Error;

use rushlight_asset::import::{gguf, huggingface};
use rushlight_testkit::gguf::GgufBuilder;

const HOSTILE: &str = "a\u{1b}[2J\u{7}\rb";

#[track_caller]
fn harmless(error: &dyn Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        let words = error.to_string();
        assert!(!words.contains(char::is_control), "{words:?}");
        assert!(words.len() < 600, "{words}");
        next = error.source();
    }
}

#[test]
fn names_from_files_are_escaped_wherever_they_are_quoted() {
    let twice = GgufBuilder::new().u32(HOSTILE, 1).u32(HOSTILE, 2);
    harmless(&gguf::Header::parse(&twice.build()).unwrap_err());
    let tensor = GgufBuilder::new().tensor(HOSTILE, &[3], 77, &[]);
    harmless(&gguf::Header::parse(&tensor.build()).unwrap_err());
    let endless = GgufBuilder::new().tensor(&"n".repeat(1_000), &[3], 77, &[]);
    harmless(&gguf::Header::parse(&endless.build()).unwrap_err());

    let entry = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4],"FIELD":1}"#;
    let escaped = serde_json::to_string(HOSTILE).unwrap();
    let json = format!(r#"{{{escaped}:{}}}"#, entry.replace("\"FIELD\"", &escaped));
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend(json.as_bytes());
    file.extend([0; 4]);
    let error = huggingface::Header::parse(&file).unwrap_err();
    assert!(error.to_string().contains("unknown field"), "{error}");
    harmless(&error);
}
