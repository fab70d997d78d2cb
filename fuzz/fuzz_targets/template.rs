//! Chat templates: any source compiles and renders within its limits, or is an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_text::{ChatTemplate, RenderRequest, TemplateLimits, TemplateSource, TemplateTokens};
use serde_json::json;

const LIMITS: TemplateLimits = TemplateLimits {
    fuel: 20_000,
    output: 1 << 16,
};

fuzz_target!(|source: &str| {
    let tokens = TemplateTokens {
        special: vec![("bos_token".to_owned(), "<s>".to_owned())],
        control: vec!["<s>".to_owned(), "<|im_end|>".to_owned()],
    };
    let source = TemplateSource::One(source.to_owned());
    let Ok(template) = ChatTemplate::new(&source, tokens) else {
        return;
    };
    let template = template.with_limits(LIMITS);
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "<|im_end|>"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    if let Ok(rendered) = template.render(&RenderRequest::new(&messages).with_tools(&tools)) {
        let mut end = 0;
        for range in &rendered.literal {
            assert!(range.start >= end && range.end > range.start);
            assert!(
                rendered.text.get(range.clone()).is_some(),
                "ranges are of whole characters"
            );
            end = range.end;
        }
    }
});
