//! Real models' templates against what `transformers` renders.

use std::sync::Arc;

use rushlight_text::{
    ChatTemplate, LocalTime, RenderRequest, TemplateSource, TemplateTokens, TextErrorKind,
};
use serde_json::{Map, Value, json};

use crate::models::{self, HUB, hub};

fn request(input: &Value) -> RenderRequest<'_> {
    let mut request = RenderRequest::new(&input["messages"]);
    request.tools = input.get("tools");
    request.add_generation_prompt = input["add_generation_prompt"].as_bool().unwrap();
    for (name, value) in input.as_object().unwrap() {
        if !["messages", "tools", "add_generation_prompt"].contains(&name.as_str()) {
            request.variables.insert(name.clone(), value.clone());
        }
    }
    request
}

#[test]
fn every_golden_case_renders_and_encodes() {
    for (name, directory) in HUB {
        let Some(tokenizer) = hub(directory) else {
            return;
        };
        let template = tokenizer.chat_template().unwrap().unwrap();
        let cases = models::goldens()[name]["cases"].as_object().unwrap();
        assert_eq!(cases.len(), 10);
        for (case, golden) in cases {
            let rendered = template.render(&request(&golden["input"]));
            if let Some(error) = golden.get("error").and_then(Value::as_str) {
                let ours = rendered.unwrap_err();
                assert_eq!(ours.kind(), TextErrorKind::TemplateRaised, "{name} {case}");
                assert_eq!(
                    format!("TemplateError: {}", ours.message()),
                    error,
                    "{name} {case}"
                );
                continue;
            }
            let rendered = rendered.unwrap();
            assert_eq!(
                rendered.text,
                golden["rendered"].as_str().unwrap(),
                "{name} {case}"
            );
            assert_eq!(
                tokenizer.encode_rendered(&rendered).unwrap(),
                models::ids(&golden["ids"]),
                "{name} {case}"
            );
        }
    }
}

#[test]
fn smollm2_adds_its_own_system_prompt() {
    let Some(tokenizer) = models::smollm2() else {
        return;
    };
    let template = tokenizer.chat_template().unwrap().unwrap();
    let rendered = template
        .render(&RenderRequest::new(
            &json!([{"role": "user", "content": "Hi"}]),
        ))
        .unwrap();
    assert_eq!(
        rendered.text,
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
    let ids = tokenizer.encode_rendered(&rendered).unwrap();
    assert_eq!(ids[..2], [1, 9690]);
    assert_eq!(ids[ids.len() - 4..], [1, 520, 9531, 198]);
    let own =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let rendered = template.render(&RenderRequest::new(&own)).unwrap();
    assert!(
        rendered
            .text
            .starts_with("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi")
    );
    let found = template.capabilities();
    assert!(found.system && found.string_content && !found.tools && found.tool_calls.is_none());
    assert!(!found.content_parts && !found.thinking_switch && found.reasoning.is_none());
}

#[test]
fn capabilities_are_what_the_templates_do() {
    let Some(qwen3) = hub("qwen3") else { return };
    let found = |tokenizer: &rushlight_text::Tokenizer| {
        tokenizer.chat_template().unwrap().unwrap().capabilities()
    };
    let qwen3 = found(qwen3);
    assert!(qwen3.system && qwen3.tools && qwen3.tool_results && qwen3.thinking_switch);
    assert!(qwen3.reasoning_content && !qwen3.content_parts && !qwen3.opens_reasoning);
    let form = qwen3.tool_calls.unwrap();
    assert!(!form.null_content && !form.string_arguments);
    assert_eq!(qwen3.reasoning.unwrap().close, "</think>");

    let gemma3 = found(hub("gemma3").unwrap());
    assert!(gemma3.system && gemma3.content_parts && gemma3.string_content);
    assert!(!gemma3.tools && gemma3.tool_calls.is_none() && !gemma3.tool_results);
    assert!(!gemma3.thinking_switch && gemma3.reasoning.is_none());

    let deepseek = found(hub("deepseek_v3").unwrap());
    assert!(deepseek.system && !deepseek.tools && deepseek.tool_results);
    let form = deepseek.tool_calls.unwrap();
    assert!(form.null_content && form.string_arguments);

    let llama = found(hub("llama3_1").unwrap());
    assert!(llama.system && !llama.tools && llama.tool_calls.is_none());
}

fn template(source: TemplateSource) -> ChatTemplate {
    ChatTemplate::new(&source, TemplateTokens::default()).unwrap()
}

#[test]
fn templates_are_chosen_by_name() {
    let named = |names: &[&str]| {
        let pair = |name: &&str| ((*name).to_owned(), format!("{name}!"));
        template(TemplateSource::Named(names.iter().map(pair).collect()))
    };
    let messages = json!([]);
    let tools = json!([{"name": "x"}]);
    let plain = RenderRequest::new(&messages);
    let with_tools = RenderRequest::new(&messages).with_tools(&tools);
    let both = named(&["default", "tool_use", "rag"]);
    assert_eq!(both.render(&plain).unwrap().text, "default!");
    assert_eq!(both.render(&with_tools).unwrap().text, "tool_use!");
    let rag = RenderRequest {
        template: Some("rag"),
        ..RenderRequest::new(&messages)
    };
    assert_eq!(both.render(&rag).unwrap().text, "rag!");
    let one = named(&["default"]);
    assert_eq!(one.render(&with_tools).unwrap().text, "default!");
    let error = one.render(&rag).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::TemplateMissing);
    let error = named(&["rag"]).render(&plain).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::TemplateMissing);

    assert_eq!(
        TemplateSource::from_json(json!([{"name": "a", "template": "b"}])).unwrap(),
        Some(TemplateSource::Named(vec![(
            "a".to_owned(),
            "b".to_owned()
        )]))
    );
    assert_eq!(TemplateSource::from_json(Value::Null).unwrap(), None);
    assert!(TemplateSource::from_json(json!([{"name": "a"}])).is_err());
    assert!(TemplateSource::from_json(json!(3)).is_err());
}

#[test]
fn the_clock_can_be_set() {
    let time = LocalTime {
        year: 2025,
        month: 1,
        day: 9,
        hour: 8,
        minute: 7,
        second: 6,
    };
    let template = template(TemplateSource::One(
        "{{ strftime_now('%d %B %Y') }}".to_owned(),
    ))
    .with_clock(Arc::new(move || time));
    let messages = json!([]);
    let request = RenderRequest::new(&messages);
    assert_eq!(template.render(&request).unwrap().text, "09 January 2025");
}

#[test]
fn input_of_the_wrong_shape_is_refused() {
    let template = template(TemplateSource::One(String::new()));
    let list = json!([]);
    for messages in [
        json!({}),
        json!([3]),
        json!([{"content": "x"}]),
        json!([{"role": 3}]),
        json!([{"role": "user", "content": 3}]),
        json!([{"role": "user", "content": [3]}]),
    ] {
        let error = template.render(&RenderRequest::new(&messages)).unwrap_err();
        assert_eq!(error.kind(), TextErrorKind::InvalidInput, "{messages}");
    }
    let tools = json!({"name": "x"});
    let request = RenderRequest::new(&list).with_tools(&tools);
    assert_eq!(
        template.render(&request).unwrap_err().kind(),
        TextErrorKind::InvalidInput
    );
    let request = RenderRequest {
        variables: Map::from_iter([("messages".to_owned(), json!([]))]),
        ..RenderRequest::new(&list)
    };
    assert_eq!(
        template.render(&request).unwrap_err().kind(),
        TextErrorKind::InvalidInput
    );
}
