//! Answers under a grammar, and what `grammar` tells of one.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::{Tiny, published, run, run_with};

/// A person, closed; with a guard, as `tags` must differ.
fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": false,
    })
}

fn is_person(text: &str) -> bool {
    let Ok(Value::Object(person)) = serde_json::from_str(text) else {
        return false;
    };
    let mut tags: Vec<&str> = person["tags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| tag.as_str().unwrap())
        .collect();
    let count = tags.len();
    tags.sort_unstable();
    tags.dedup();
    person.keys().eq(["name", "age", "tags"])
        && person["name"]
            .as_str()
            .is_some_and(|name| name.chars().count() <= 8)
        && person["age"].as_u64().is_some_and(|age| age <= 120)
        && tags.len() == count
        && tags.iter().all(|tag| ["a", "b", "c"].contains(tag))
}

#[test]
fn random_weights_keep_to_a_schema_whatever_the_options() {
    let tiny = Tiny::new();
    let schema = person().to_string();
    for (seed, more) in [
        &[][..],
        &["--temperature", "1.5"],
        &["--sample-forced", "--top-p", "0.9"],
        &["--repetition-penalty", "1.3", "--min-p", "0.01"],
        &["--max-tokens", "40", "--temperature", "2"],
        &["--engine", "pipelined"],
    ]
    .iter()
    .enumerate()
    {
        let seed = seed.to_string();
        let fixed = [
            "run",
            "--json",
            "--model",
            tiny.model(),
            "--raw",
            "--prompt",
            "x",
            "--json-schema",
            &schema,
        ];
        let answer = run(&[&fixed[..], &["--seed", &seed], more].concat()).json();
        assert!(is_person(answer["text"].as_str().unwrap()), "{answer}");
        assert_eq!(answer["finish_reason"], "grammar", "{answer}");
        assert!(answer["grammar"]["masks"].as_u64().unwrap() > 0, "{answer}");
    }
}

#[test]
fn every_kind_of_grammar_is_kept_to() {
    let tiny = Tiny::new();
    let gbnf = tiny
        .folder
        .write("list.gbnf", "root ::= \"<\" [a-c]{2,4} \">\"\n");
    let lark = tiny.folder.write(
        "list.lark",
        "start: \"<\" LETTERS \">\"\nLETTERS: /[a-c]{2,4}/\n",
    );
    let tag = r#"{"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "<"}, {"type": "regex", "pattern": "[a-c]{2,4}"}, {"type": "const_string", "value": ">"}]}}"#;
    let within = |text: &str| {
        let letters = text
            .strip_prefix('<')
            .and_then(|text| text.strip_suffix('>'));
        letters.is_some_and(|letters| {
            (2..=4).contains(&letters.len()) && letters.bytes().all(|c| b"abc".contains(&c))
        })
    };
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    for (option, value) in [
        ("--grammar", path(&gbnf)),
        ("--lark", path(&lark)),
        ("--regex", "<[a-c]{2,4}>".to_owned()),
        ("--structural-tag", tag.to_owned()),
    ] {
        let arguments = [
            "run",
            "--json",
            "--model",
            tiny.model(),
            "--raw",
            "--prompt",
            "x",
            "--seed",
            "3",
            option,
            &value,
        ];
        let answer = run(&arguments).json();
        assert!(
            within(answer["text"].as_str().unwrap()),
            "{option}: {answer}"
        );
    }
    let fixed = [
        "run",
        "--json",
        "--model",
        tiny.model(),
        "--raw",
        "--prompt",
        "x",
        "--max-tokens",
        "60",
    ];
    let chosen = run(&[&fixed[..], &["--choice", "yes", "--choice", "no"]].concat()).json();
    assert!(
        ["yes", "no"].contains(&chosen["text"].as_str().unwrap()),
        "{chosen}"
    );
    let object = run(&[&fixed[..], &["--json-object"]].concat()).json();
    let text = object["text"].as_str().unwrap();
    assert!(
        serde_json::from_str::<Value>(text).unwrap().is_object(),
        "{object}"
    );
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_is_said() {
    let tiny = Tiny::new();
    let fixed = ["run", "--model", tiny.model(), "--raw", "--prompt", "x"];
    let run_with_schema =
        |schema: &str, more: &[&str]| run(&[&fixed[..], &["--json-schema", schema], more].concat());
    run_with_schema(
        r##"{"properties": {"a": {"type": "text"}, "b": {"$ref": "#/nowhere"}}}"##,
        &[],
    )
    .refused(
        1,
        &[
            "at '/properties/a', keyword 'type'",
            "at '/properties/b', keyword '$ref'",
        ],
    );
    run_with_schema(
        r#"{"type": "string", "minLength": 30}"#,
        &["--max-tokens", "9"],
    )
    .refused(1, &["32 tokens, and the limit on tokens leaves 9"]);
    run_with_schema("{\"type\": }", &[]).refused(1, &["line 1 column 10"]);
    run_with_schema("no-such.json", &[]).refused(1, &["no-such.json"]);
    run_with_schema("{}", &["--grammar-after", "</think>"])
        .refused(1, &["grammar_after", "no control token"]);
    run_with_schema("{}", &["--regex", "a"]).refused(2, &["--regex"]);
    run(&[&fixed[..], &["--sample-forced"]].concat()).refused(2, &["--json-schema", "required"]);
    run(&[&fixed[..], &["--regex", "(a"]].concat()).refused(1, &["1:"]);
    // A ban may leave nothing to say.
    run(&[
        &fixed[..],
        &[
            "--choice",
            "a",
            "--logit-bias",
            "97=-inf",
            "--sample-forced",
        ],
    ]
    .concat())
    .refused(1, &["no token is legal here"]);
}

#[test]
fn verdicts_say_where_a_text_leaves_the_grammar() {
    let tiny = Tiny::new();
    let schema = person().to_string();
    let texts = [
        (r#"{"name":"Al","age":3,"tags":["a","b"]}"#, None),
        (r#"{"name":"Al","age":300}"#, Some((21, json!("0")))),
        (
            r#"{"name":"Al","age":3,"tags":["a","a"]}"#,
            Some((34, json!("a"))),
        ),
        (r#"{"name":"Al""#, Some((12, Value::Null))),
        ("", Some((0, Value::Null))),
    ];
    let lines: String = texts
        .iter()
        .map(|(text, _)| format!("{}\n", json!(text)))
        .collect();
    let arguments = [
        "grammar",
        "check",
        "--json",
        "--lines",
        "--model",
        tiny.model(),
        "--schema",
        &schema,
    ];
    let told = run_with(&arguments, &lines).good().stdout;
    let told: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told.len(), texts.len());
    for ((text, expected), told) in texts.iter().zip(&told) {
        let expected = match expected {
            None => json!({"verdict": "accept", "at": text.len(), "token": null}),
            Some((at, token)) => json!({"verdict": "reject", "at": at, "token": token}),
        };
        assert_eq!(told, &expected, "{text}");
    }
    // What others wrote has its members in any order; an answer never has.
    let other = format!("{}\n", json!(r#"{"age":3,"tags":[],"name":"Al"}"#));
    let told = run_with(&arguments, other).good().stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        told,
        json!({"verdict": "accept", "at": 31, "token": null, "order": "any"})
    );
    // A text is rejected also where nothing else could stand in its place.
    let never = r#"{"type": "array", "items": {"type": "string", "maxLength": 0}, "uniqueItems": true, "minItems": 2}"#;
    let never = [
        "grammar",
        "check",
        "--json",
        "--model",
        tiny.model(),
        "--schema",
        never,
    ];
    let told = run_with(&never, r#"["",""]"#).good().stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["verdict"], "reject");
    let whole = [
        "grammar",
        "check",
        "--model",
        tiny.model(),
        "--regex",
        "a+\n?",
    ];
    // One line break at the end is the shell's, another one the text's.
    for (stdin, verdict) in [
        ("aaa\n", "accept"),
        ("aaa\n\n", "accept"),
        ("aaa\n\n\n", "reject"),
    ] {
        let told = run_with(&whole, stdin).good().stdout;
        assert!(told.contains(verdict), "{stdin:?}: {told}");
    }
    let plain = [
        "grammar",
        "check",
        "--lines",
        "--model",
        tiny.model(),
        "--json-object",
    ];
    run_with(&plain, "not a string\n").refused(1, &["stdin, line 1"]);
}

#[test]
fn a_grammar_is_explained_keyword_by_keyword() {
    let explained = run(&["--json", "grammar", "explain", &person().to_string()]).json();
    let how = |pointer: &str, keyword: &str| {
        let keywords = explained["keywords"].as_array().unwrap();
        let found = keywords
            .iter()
            .find(|k| k["pointer"] == pointer && k["keyword"] == keyword);
        found.unwrap_or_else(|| panic!("{pointer} {keyword}: {explained}"))["how"].clone()
    };
    assert_eq!(how("/properties/age", "maximum"), "grammar");
    assert_eq!(how("/properties/tags", "uniqueItems"), "guard");
    let refused = run(&["grammar", "explain", "--no-guards", &person().to_string()]);
    refused.refused(1, &["/properties/tags", "uniqueItems"]);
    let choice = run(&["grammar", "explain", "--choice", "a"]).good();
    assert!(choice.stdout.starts_with("choice: "), "{choice:?}");
}

#[test]
fn a_mask_shows_what_may_come_next() {
    let tiny = Tiny::new();
    let arguments = [
        "--json",
        "grammar",
        "mask",
        "--model",
        tiny.model(),
        "--choice",
        "yes",
        "--choice",
        "yes please",
        "--prefix",
        "yes",
    ];
    let mask = run(&arguments).json();
    assert_eq!(mask["may_end"], true);
    assert_eq!(mask["allowed"], 1);
    assert_eq!(mask["tokens"][0]["piece"], " ");
    let arguments = [
        "grammar",
        "mask",
        "--model",
        tiny.model(),
        "--choice",
        "yes",
        "--prefix",
        "n",
    ];
    run(&arguments).refused(1, &["leaves the grammar at byte 0: \"n\""]);
}

#[test]
fn costs_are_measured_over_a_folder_or_lines() {
    let tiny = Tiny::new();
    fs::create_dir(tiny.folder.path().join("schemas")).unwrap();
    tiny.folder.write("schemas/one.json", person().to_string());
    tiny.folder
        .write("schemas/two.json", "{\"type\": \"text\"}");
    let lines = tiny.folder.write(
        "lines.jsonl",
        json!({"schema": {"type": "integer"}, "tests": [{"data": 1234}]}).to_string(),
    );
    let bench =
        |path: &str| run(&["--json", "grammar", "bench", "--model", tiny.model(), path]).json();
    let folder = bench(&tiny.path("schemas"));
    assert_eq!(
        (&folder["schemas"], &folder["refused"]),
        (&json!(2), &json!(1))
    );
    let lines = bench(lines.to_str().unwrap());
    assert_eq!(lines["times"][2]["count"], 4, "{lines}");
}

#[test]
fn smollm2_answers_in_the_shape_of_a_schema_the_same_with_every_seed_twice() {
    let Some(model) = published("SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return;
    };
    let schema = person().to_string();
    for seed in ["1", "2"] {
        let arguments = [
            "run",
            "--json",
            "--model",
            &model,
            "--prompt",
            "Describe a person as JSON.",
            "--temperature",
            "1",
            "--seed",
            seed,
            "--json-schema",
            &schema,
        ];
        let (once, again) = (run(&arguments).json(), run(&arguments).json());
        assert!(is_person(once["text"].as_str().unwrap()), "{once}");
        assert_eq!(once["tokens"], again["tokens"]);
        assert!(
            once["grammar"]["forced_tokens"].as_u64().unwrap() > 0,
            "{once}"
        );
    }
    // Thoughts are free up to a control token; SmolLM2 has one that ends turns of a role.
    let arguments = [
        "run",
        "--json",
        "--model",
        &model,
        "--prompt",
        "Think, then say yes or no.",
        "--max-tokens",
        "40",
        "--choice",
        "yes",
        "--choice",
        "no",
        "--grammar-after",
        "<|im_start|>",
        "--seed",
        "5",
    ];
    let answer = run(&arguments).json();
    let text = answer["text"].as_str().unwrap();
    assert!(text.ends_with("yes") || text.ends_with("no"), "{answer}");
}
