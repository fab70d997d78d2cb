//! Just enough of a GGUF reader to get at a vocabulary.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use rushlight_text::GgufVocabulary;

#[derive(Debug)]
enum Meta {
    Number(f64),
    Bool(bool),
    Text(String),
    List(Vec<Meta>),
}

pub(crate) fn vocabulary(path: &Path) -> GgufVocabulary {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut meta = metadata(BufReader::new(file));
    let mut take = |key: &str| meta.remove(&format!("tokenizer.{key}"));
    let text = |meta: Option<Meta>| match meta {
        Some(Meta::Text(text)) => Some(text),
        _ => None,
    };
    let id = |meta: Option<Meta>| match meta {
        Some(Meta::Number(n)) => Some(n as u32),
        _ => None,
    };
    let flag = |meta: Option<Meta>| match meta {
        Some(Meta::Bool(b)) => Some(b),
        _ => None,
    };
    let list = |meta: Option<Meta>| match meta {
        Some(Meta::List(list)) => Some(list),
        _ => None,
    };
    let numbers = |list: Vec<Meta>| {
        list.into_iter().map(|meta| match meta {
            Meta::Number(n) => n,
            other => panic!("{other:?}"),
        })
    };
    let texts = |list: Option<Vec<Meta>>| {
        list.into_iter()
            .flatten()
            .map(|meta| text(Some(meta)).unwrap())
            .collect::<Vec<_>>()
    };
    GgufVocabulary {
        model: text(take("ggml.model")).unwrap(),
        pre: text(take("ggml.pre")),
        tokens: texts(list(take("ggml.tokens"))),
        scores: list(take("ggml.scores")).map(|l| numbers(l).map(|n| n as f32).collect()),
        token_types: list(take("ggml.token_type")).map(|l| numbers(l).map(|n| n as i32).collect()),
        merges: texts(list(take("ggml.merges"))),
        bos: id(take("ggml.bos_token_id")),
        eos: id(take("ggml.eos_token_id")),
        eot: id(take("ggml.eot_token_id")),
        eom: id(take("ggml.eom_token_id")),
        unk: id(take("ggml.unknown_token_id")),
        pad: id(take("ggml.padding_token_id")),
        add_bos: flag(take("ggml.add_bos_token")),
        add_eos: flag(take("ggml.add_eos_token")),
        add_space_prefix: flag(take("ggml.add_space_prefix")),
        chat_template: text(take("chat_template")),
    }
}

fn metadata(mut file: impl Read) -> HashMap<String, Meta> {
    assert_eq!(&bytes::<4>(&mut file), b"GGUF");
    bytes::<12>(&mut file);
    let count = u64::from_le_bytes(bytes(&mut file));
    (0..count)
        .map(|_| {
            let key = string(&mut file);
            let kind = u32::from_le_bytes(bytes(&mut file));
            (key, value(&mut file, kind))
        })
        .collect()
}

fn value(file: &mut impl Read, kind: u32) -> Meta {
    match kind {
        0 => Meta::Number(f64::from(u8::from_le_bytes(bytes(file)))),
        1 => Meta::Number(f64::from(i8::from_le_bytes(bytes(file)))),
        2 => Meta::Number(f64::from(u16::from_le_bytes(bytes(file)))),
        3 => Meta::Number(f64::from(i16::from_le_bytes(bytes(file)))),
        4 => Meta::Number(f64::from(u32::from_le_bytes(bytes(file)))),
        5 => Meta::Number(f64::from(i32::from_le_bytes(bytes(file)))),
        6 => Meta::Number(f64::from(f32::from_le_bytes(bytes(file)))),
        7 => Meta::Bool(bytes::<1>(file)[0] != 0),
        8 => Meta::Text(string(file)),
        9 => {
            let kind = u32::from_le_bytes(bytes(file));
            let count = u64::from_le_bytes(bytes(file));
            Meta::List((0..count).map(|_| value(file, kind)).collect())
        }
        10 => Meta::Number(u64::from_le_bytes(bytes(file)) as f64),
        11 => Meta::Number(i64::from_le_bytes(bytes(file)) as f64),
        12 => Meta::Number(f64::from_le_bytes(bytes(file))),
        other => panic!("metadata of type {other}"),
    }
}

fn string(file: &mut impl Read) -> String {
    let mut text = vec![0; u64::from_le_bytes(bytes(file)) as usize];
    file.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn bytes<const N: usize>(file: &mut impl Read) -> [u8; N] {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes).unwrap();
    bytes
}
